#!/usr/bin/env bash
# Full passes on a Titan X (table 1 of the 2017 paper), and the layers of VGG-16.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

on=(--device=TITAN_X --cost_model=paleo2017 --ppp_comp=0.62)
run alex_v2 paleo summary alex_v2 --batch_size=128 "${on[@]}"
run vgg paleo summary vgg16 vgg11 --batch_size=64 "${on[@]}"
run vgg_16 paleo summary vgg16 --batch_size=16 "${on[@]}"
run vgg_128 paleo summary vgg16 --batch_size=128 "${on[@]}"
beside
