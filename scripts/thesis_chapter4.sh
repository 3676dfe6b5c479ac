#!/usr/bin/env bash
# Tables 4.1 to 4.8 of the dissertation, edits of NiN, and its single figures.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

run nin paleo summary nin_227
run input_channels paleo compare nin_227 '--set=data.tensor[3]=12'
run conv8_filters paleo compare nin_227 '--set=conv8.filter[3]=1536'
run conv7_size paleo compare nin_227 '--set=conv7.filter[0:2]=6' '--set=conv7.padding=[2,2]'
run categories paleo compare nin_227 '--set=conv12.filter[3]=4000'
run pool3_removed paleo compare nin_227 --remove=pool3
run input_size paleo compare nin_227 '--set=data.tensor[1:3]=454'
run single paleo summary lenet5 lenet5_224 vgg19 --batch_size=1
beside
