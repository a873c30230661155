#!/usr/bin/env bash
# Train on four machines under Slurm, with two ranks on each and four forked processes in each rank: sbatch slurm.sh
# If a machine fails, the job is queued again and resumes. The run directory must be on a shared disk.
#SBATCH --job-name=minigrad
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail

cd "$SLURM_SUBMIT_DIR"
. venv/bin/activate          # pip install -e . mpi4py mpich, here on the shared disk
export OPENBLAS_NUM_THREADS=1 # cores are for the processes

# The mpiexec of pip's mpich finds the machines of the job by itself. With the site's own MPI instead:
#     srun --mpi=pmi2 --kill-on-bad-exit=1 python ...
mpiexec -n "$SLURM_NTASKS" -ppn "$SLURM_NTASKS_PER_NODE" \
  minigrad train --data pairs.tsv --out runs/pairs --resume \
  --processes "$SLURM_CPUS_PER_TASK"
