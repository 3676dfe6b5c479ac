#!/usr/bin/env bash
# Figure 5 of the 2017 paper: Inception v3 on up to 100 GPUs.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for device in K40 K20; do
  run "$device" paleo simulate inception_v3 --batch_size=256 --device="$device" --network=ethernet \
    --num_workers=1,2,4,8,16,32,50,64,100,128 --cost_model=paleo2017 --ppp_comp=0.62 --ppp_comm=0.72 --scaling=weak
done
beside
