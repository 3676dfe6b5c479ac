#!/usr/bin/env bash
# The MXNet case of the 2017 paper: AlexNet and Inception v3 on up to 128 GPUs.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

plan=(--device=K80 --network=ethernet20 --cost_model=paleo2017 --ppp_comp=0.49 --ppp_comm=0.72 --scaling=weak)
run alex_v2 paleo simulate alex_v2 --batch_size=512 "${plan[@]}"
run inception_v3 paleo simulate inception_v3 --batch_size=32 "${plan[@]}"
run inception_v3_512 paleo simulate inception_v3 --batch_size=512 "${plan[@]}"
beside
