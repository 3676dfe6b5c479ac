#!/usr/bin/env bash
# The AlexNet case of the 2017 paper: one large and one small batch, strong and weak scaling.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for batch in 2048 256; do
  run "batch_$batch" paleo simulate alex_v2 --batch_size="$batch" --device=K80 --network=ethernet20 \
    --cost_model=paleo2017 --ppp_comp=0.62 --ppp_comm=1.0 --scaling=strong,weak
done
for batch in 1024 256; do
  run "demo_$batch" paleo simulate alex_v2 --batch_size="$batch" --device=K80 --network=ethernet20 \
    --cost_model=paleo2017 --ppp_comp=0.62 --ppp_comm=0.72 --scaling=strong,weak
done
beside
