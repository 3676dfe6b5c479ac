#!/usr/bin/env bash
# Tables 5.1 to 5.3 and figures 5.3 and 5.4 of the dissertation: SqueezeNet.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

run squeezenet paleo summary squeezenet squeezenet_simple_bypass squeezenet_complex_bypass alexnet
run ungrouped paleo summary alexnet '--set=conv?.groups=1'
run sr paleo summary squeezenet --vary=squeezenet.sr=0.125,0.25,0.375,0.5,0.625,0.75,0.875,1
run pct paleo summary squeezenet --set=squeezenet.sr=0.5 \
  --vary=squeezenet.pct3x3=0.01,0.125,0.25,0.375,0.5,0.625,0.75,0.875,0.99
beside
