#!/usr/bin/env bash
# Start the daemon of one node of a cluster that start.sh made, or start it again: node.sh FOLDER NUMBER
set -euo pipefail
folder=$(realpath "$1") number=$2 name=try$2
. "$folder/network"
. "$folder/environment"
mkdir -p "$folder/spool/$name"
rm -f "$folder/run/$name.pid"
# A host name of its own needs a namespace of its own.
ip netns exec "$tag-$number" unshare --uts sh -c 'hostname "$1"; exec slurmd -f "$SLURM_CONF" -N "$1"' start "$name"
for _ in $(seq 100); do [ -s "$folder/run/$name.pid" ] && break; sleep 0.1; done
cat "$folder/run/$name.pid" >> "$folder/pids"
echo >> "$folder/pids"
