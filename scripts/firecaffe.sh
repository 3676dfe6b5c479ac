#!/usr/bin/env bash
# Table 3 of the 2017 paper: NiN under FireCaffe, on up to 128 GPUs.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for batch in 256 1024; do
  run "batch_$batch" paleo simulate nin --batch_size="$batch" --device=K20X --network=infiniband \
    --use_only_gemm --cost_model=paleo2017 --ppp_comp=0.21 --ppp_comm=0.56 --scaling=strong
done
beside
