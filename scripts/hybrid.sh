#!/usr/bin/env bash
# Table 4 of the 2017 paper: AlexNet under hybrid parallelism, on up to 8 GPUs.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

plan=(--batch_size=128 --device=K20 --network=pcie2 --use_only_gemm --cost_model=paleo2017
  --ppp_comp=0.46 --ppp_comm=0.75)
for gpus in 1 2 4 8; do
  run "gpus_$gpus" paleo simulate "alex_v2_${gpus}gpu" --parallel=hybrid --hybrid_workers="$gpus" "${plan[@]}"
done
run data paleo simulate alex_v2_1gpu --num_workers=1,2,4,8 --scaling=weak "${plan[@]}"
beside
