#!/bin/bash
# One run on several nodes with GPUs: sbatch slurm.sh my.yaml -n mine
# The folders of the data, of outputs/ and of MINITF_CACHE must be the same on all nodes.
#SBATCH --job-name=minitf
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --array=1-4%1
#SBATCH --signal=TERM@180
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%A.log
# array: the same command up to 4 times, one after the other; each continues the run, or ends at once if it is finished.
# signal: 3 minutes before the time limit all processes stop after the same step and save.
set -euo pipefail

# Nodes meet on the first of them. The port must be free there, and reachable from the other nodes only.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=150 # seconds to save after the signal
export MINITF_CACHE=${MINITF_CACHE:-$PWD/.minitf-cache}

exec srun --kill-on-bad-exit=1 torchrun \
    --nnodes="$SLURM_JOB_NUM_NODES" \
    --nproc-per-node="${SLURM_GPUS_ON_NODE:-1}" \
    --rdzv-backend=c10d \
    --rdzv-endpoint="$first:29500" \
    --rdzv-id="$SLURM_JOB_ID" \
    --rdzv-conf=join_timeout=300 \
    --max-restarts=0 \
    -m mini_tf pretrain "$@"
