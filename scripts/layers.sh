#!/usr/bin/env bash
# The layers of AlexNet on a Titan X, as in the 2017 paper.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

run layers paleo summary alex_v2 --batch_size=128 --device=TITAN_X --cost_model=paleo2017 --ppp_comp=0.62
beside
