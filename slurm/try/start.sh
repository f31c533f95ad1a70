#!/usr/bin/env bash
# Try Slurm on your laptop: a real cluster of small nodes on this machine. stop.sh removes it completely.
#
#   sudo apt-get install --no-install-recommends slurm-wlm munge iproute2
#   sudo slurm/try/start.sh [FOLDER]         then, as root:  . FOLDER/environment;  sinfo
#   sudo slurm/try/stop.sh [FOLDER]
#
#   NODES=4 CORES=2 MEMORY_MB=4000           the nodes of partition `main`, and what each claims to have
#   GPU_NODES=0 GPUS=1                       more nodes, with pretended GPUs, in partition `gpu`; `all` has every node
#
# A node is a network namespace with its own address and host name, in which a slurmd runs. Keys, state, logs and
# process ids lie in FOLDER. There is no systemd and no database, and nothing that is installed is changed.
set -euo pipefail
folder=$(realpath -m "${1:-slurm-cluster}")
plain=${NODES:-4} with_gpus=${GPU_NODES:-0} cores=${CORES:-2} memory=${MEMORY_MB:-4000} gpus=${GPUS:-1}
nodes=$((plain + with_gpus))
name=try

refuse() { echo "start.sh: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || refuse "network namespaces need root; next: sudo $0"
for program in slurmctld slurmd munged ip unshare; do
  command -v $program > /dev/null || refuse "$program is missing; next: apt-get install slurm-wlm munge iproute2"
done
[ ! -e "$folder/pids" ] || refuse "$folder holds a cluster already; next: $(dirname "$0")/stop.sh $folder"

# The names of namespaces and links, and the network, depend on this folder. So several clusters can run side by side.
digest=$(printf %s "$folder" | cksum | cut -d' ' -f1)
tag=tl$((digest % 100000)) network=10.$((64 + digest % 64)).$((digest / 64 % 250))
port=$((20000 + digest % 10000 * 2))
control=$(hostname -s)

mkdir -p "$folder"/{etc,log,run,state,spool,munge}
chmod 700 "$folder/munge"
: > "$folder/pids"
printf 'tag=%s\nnodes=%s\n' "$tag" "$nodes" > "$folder/network"
echo "export SLURM_CONF=$folder/etc/slurm.conf" > "$folder/environment"
. "$folder/environment"

# until_true COMMAND: wait until the command succeeds, ten seconds at most
until_true() {
  for _ in $(seq 100); do if "$@" > /dev/null 2>&1; then return; fi; sleep 0.1; done
  refuse "waited in vain for: $*; see $folder/log"
}
remember() { until_true test -s "$1"; cat "$1" >> "$folder/pids"; echo >> "$folder/pids"; }

# --- the key that all daemons share
head -c 1024 /dev/urandom > "$folder/munge/key"
chmod 400 "$folder/munge/key"
munged --force --key-file="$folder/munge/key" --seed-file="$folder/munge/seed" --socket="$folder/run/munge" \
  --pid-file="$folder/run/munged.pid" --log-file="$folder/log/munged.log"
remember "$folder/run/munged.pid"

# --- the network: a bridge with one virtual cable to every node, and no route to the outside
ip link add "$tag" type bridge
ip addr add "$network.254/24" dev "$tag"
ip link set "$tag" up
{
  echo "127.0.0.1 localhost"
  echo "$network.254 $control"
  for i in $(seq "$nodes"); do echo "$network.$i $name$i"; done
} > "$folder/etc/hosts"
mkdir -p /etc/slurm
for i in $(seq "$nodes"); do
  space=$tag-$i
  ip netns add "$space"
  # Inside the namespace, a file in /etc/netns/<namespace> replaces the file of the same name in /etc. Slurm's
  # configuration has to be found there, because Snakemake removes SLURM_CONF from a job's environment.
  mkdir -p "/etc/netns/$space"
  cp "$folder/etc/hosts" "/etc/netns/$space/hosts"
  echo "hosts: files" > "/etc/netns/$space/nsswitch.conf"
  ln -s "$folder/etc" "/etc/netns/$space/slurm"
  ip link add "$tag-$i" type veth peer name eth0 netns "$space"
  ip link set "$tag-$i" master "$tag" up
  ip -n "$space" addr add "$network.$i/24" dev eth0
  ip -n "$space" link set eth0 up
  ip -n "$space" link set lo up
done

# --- Slurm's configuration
cat > "$folder/etc/slurm.conf" << CONF
ClusterName=throughline
SlurmctldHost=$control($network.254)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$folder/run/munge,cred_expire=20
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/%n.log
# a task is bound to the cores that it has asked for; no control groups, because with them no job starts in a container
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
# nodes may claim more than the machine has, and come back by themselves
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=30
InactiveLimit=0
KillWait=5
OverTimeLimit=0
MinJobAge=600
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=200
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$folder/log/completed.txt
PropagateResourceLimits=NONE
GresTypes=gpu
PartitionName=main Nodes=$name[1-$plain] Default=YES MaxTime=24:00:00 State=UP
PartitionName=all Nodes=ALL MaxTime=24:00:00 State=UP
CONF
echo "CgroupPlugin=cgroup/v1" > "$folder/etc/cgroup.conf" # Slurm reads it and does not use it
: > "$folder/etc/gres.conf"
for i in $(seq "$nodes"); do
  kind=Feature=plain
  if [ "$i" -gt "$plain" ]; then
    kind="Feature=accelerated Gres=gpu:pretended:$gpus"
    for g in $(seq 0 $((gpus - 1))); do [ -e "$folder/run/gpu$g" ] || mknod "$folder/run/gpu$g" c 1 3; done
    echo "NodeName=$name$i Name=gpu Type=pretended File=$folder/run/gpu[0-$((gpus - 1))]" >> "$folder/etc/gres.conf"
  fi
  echo "NodeName=$name$i NodeAddr=$network.$i CPUs=$cores RealMemory=$memory $kind State=UNKNOWN" >> "$folder/etc/slurm.conf"
done
if [ "$with_gpus" -gt 0 ]; then
  echo "PartitionName=gpu Nodes=$name[$((plain + 1))-$nodes] MaxTime=24:00:00 State=UP" >> "$folder/etc/slurm.conf"
fi

# --- the daemons
slurmctld -c -f "$SLURM_CONF"
remember "$folder/run/slurmctld.pid"
for i in $(seq "$nodes"); do "$(dirname "$(realpath "$0")")/node.sh" "$folder" "$i"; done
idle() { [ "$(sinfo --noheader --format '%D %t' | awk '$2 == "idle" { n += $1 } END { print n + 0 }')" = "$nodes" ]; }
until_true idle
sinfo
echo "To use it: . $folder/environment"
