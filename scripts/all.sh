#!/usr/bin/env bash
# Every experiment, and of their tables docs/reproduction.md (or the file that PAGE names).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

PAGE=${PAGE:-$root/docs/reproduction.md}
experiments="layers layers_all firecaffe hybrid inception alexnet_scalability mxnet
  thesis_chapter3 thesis_chapter4 thesis_chapter5"

for each in $experiments; do
  "$scripts/$each.sh"
done
{
  cat "$scripts/published/header.md"
  for each in $experiments; do
    echo
    cat "$RESULTS/$each.md"
  done
} >"$PAGE.part"
mv "$PAGE.part" "$PAGE"
