#!/usr/bin/env bash
# End the cluster that start.sh made in FOLDER: its jobs, its daemons (by their process ids), its network.
set -uo pipefail
folder=$(realpath -m "${1:-slurm-cluster}")
[ -e "$folder/pids" ] || { echo "stop.sh: no cluster in $folder"; exit 0; }
. "$folder/network"
. "$folder/environment"

jobs=$(timeout 10 squeue --noheader --format %A 2> /dev/null | sort -u)
if [ -n "$jobs" ]; then
  timeout 20 scancel --signal=KILL --full $jobs
  timeout 20 scancel $jobs
  sleep 2
fi

# True if the process is still a daemon of this cluster: the system may have given its id to another process.
ours() { case "$(cat "/proc/$1/comm" 2> /dev/null)" in slurmd | slurmctld | munged) true ;; *) false ;; esac; }
for signal in TERM KILL; do
  for pid in $(tac "$folder/pids"); do if ours "$pid"; then kill -$signal "$pid"; fi; done
  for _ in $(seq 50); do
    left=0
    for pid in $(cat "$folder/pids"); do if ours "$pid"; then left=1; fi; done
    [ $left = 0 ] && break 2
    sleep 0.1
  done
done

for number in $(seq "$nodes"); do
  for pid in $(ip netns pids "$tag-$number" 2> /dev/null); do kill -KILL "$pid"; done # processes that jobs left behind
  ip netns del "$tag-$number" 2> /dev/null
  ip link del "$tag-$number" 2> /dev/null
  rm -rf "/etc/netns/$tag-$number"
done
ip link del "$tag" 2> /dev/null
rmdir /etc/netns 2> /dev/null
rm -f "$folder/pids" "$folder"/run/*.pid "$folder"/run/munge*
echo "stopped"
