#!/bin/bash
# A starting point: only its syntax is tested, it has not been run. Fill in partition, folders and the environment.
#
# Starts a Ray cluster on the nodes of one Slurm job, with its own token, measures the landscapes, and ends the cluster.
# Submit with `sbatch slurm.sh`; after the time limit, submit it again: it continues from the landscape files.
#SBATCH --job-name=landscape
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --time=08:00:00
#SBATCH --signal=B:TERM@120

set -euo pipefail

RUN=/shared/run
LANDSCAPES=/shared/landscapes
CODE=/shared/code # holds my_training.py
source /shared/venv/bin/activate
cd "$CODE"

# The token travels in the environment that srun hands on, never on a command line, which other users could read.
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN

# Jobs of other users on the same nodes have other numbers and so, mostly, other ports.
PORT=$((20000 + SLURM_JOB_ID % 20000))
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
HEAD_IP=$(srun --nodes=1 --ntasks=1 --nodelist="$HEAD" hostname --ip-address | awk '{print $1}')
export RAY_ADDRESS="$HEAD_IP:$PORT"

srun --nodes=1 --ntasks=1 --nodelist="$HEAD" \
    ray start --head --node-ip-address="$HEAD_IP" --port="$PORT" --include-dashboard=false --disable-usage-stats \
    --num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus="$SLURM_GPUS_ON_NODE" --block &

if ((SLURM_JOB_NUM_NODES > 1)); then
    sleep 20 # a worker that finds no head gives up
    srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$HEAD" \
        ray start --address="$RAY_ADDRESS" --disable-usage-stats \
        --num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus="$SLURM_GPUS_ON_NODE" --block &
fi
sleep 20

# TERM comes two minutes before the time limit; landscape writes its files and ends.
landscape run "$RUN" --function my_training:callback_fn --output "$LANDSCAPES" --quiet &
LANDSCAPE=$!
trap 'kill -TERM "$LANDSCAPE"' TERM
wait "$LANDSCAPE"
