#!/usr/bin/env bash
# Start, or restart, the daemon of one node of a cluster that start.sh made: node.sh FOLDER NUMBER
set -euo pipefail
folder=$(realpath "$1") number=$2 name=try$2
. "$folder/network"
. "$folder/environment"
mkdir -p "$folder/spool/$name"
rm -f "$folder/run/$name.pid"
# The node has its own host name, so it needs its own UTS namespace.
ip netns exec "$tag-$number" unshare --uts sh -c 'hostname "$1"; exec slurmd -f "$SLURM_CONF" -N "$1"' start "$name"
for _ in $(seq 100); do [ -s "$folder/run/$name.pid" ] && break; sleep 0.1; done
cat "$folder/run/$name.pid" >> "$folder/pids"
echo >> "$folder/pids"
