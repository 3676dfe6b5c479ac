#!/usr/bin/env bash
# Tables 3.1 to 3.3 and figure 3.5 of the dissertation: FireCaffe.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

run nets paleo summary nin_227 alexnet googlenet vgg19 msft_speech --batch_size=1024
run ungrouped paleo summary alexnet --batch_size=1024 '--set=conv?.groups=1'

caffe=(--device=K20 --network=infiniband --scaling=strong --cost_model=paleo2017 --ppp_comp=0.21 --ppp_comm=0.56)
run batch_256 paleo simulate alexnet nin_227 --batch_size=256 --num_workers=1,32 "${caffe[@]}"
run batch_32 paleo simulate googlenet --batch_size=32 --num_workers=1 "${caffe[@]}"
run batch_1024 paleo simulate nin_227 googlenet --batch_size=1024 --num_workers=2,4,8,16,32,64,128 \
  "${caffe[@]}"

for gpus in 1 8; do
  run "gpus_$gpus" paleo simulate "alex_v2_${gpus}gpu" --parallel=hybrid --hybrid_workers="$gpus" \
    --batch_size=128 --device=K20 --network=pcie2 --cost_model=paleo2017 --ppp_comp=0.46 --ppp_comm=0.75
done
beside
