#!/usr/bin/env bash
# A launch script of verl. rankplan reads it without running it: rankplan check examples/verl.sh
NNODES=${NNODES:-1}
GPUS_PER_NODE=${GPUS_PER_NODE:-4}
ROLLOUT_TP=${ROLLOUT_TP:-2}
ARGS=(
    algorithm.adv_estimator=grpo
    trainer.nnodes=${NNODES}
    trainer.n_gpus_per_node=${GPUS_PER_NODE}
)
if [ "${ROLLOUT_TP}" -gt 1 ]; then
    ARGS+=(actor_rollout_ref.rollout.tensor_model_parallel_size=${ROLLOUT_TP})
fi
python3 -m verl.trainer.main_ppo \
    "${ARGS[@]}" \
    actor_rollout_ref.actor.use_kl_loss=True "$@"
