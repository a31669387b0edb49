//! Every number of the calculation that is no size of a model and no setting: with its source, or what it was fitted to.
//!
//! Bytes of a weight, a gradient or a moment follow from their types, and stand in the formulas of `training.rs`. Rows are those of
//! the published runs and reports in `tests/golden` (`memory_rows`, `memory_reports`, `fsdp_peaks`).

use super::GIB;

// What every process has.

/// The context of a process on an accelerator, at most. A sleeping engine of vLLM kept 0.76 GiB with it (`asleep`).
pub const CONTEXT: f64 = GIB;
/// Buffers of collectives, at most. An engine in a tensor group kept 2.4 and 7.2 GiB asleep, with its context (`asleep`).
pub const COMMUNICATION: f64 = 4.0 * GIB;
/// The same of a component with one slot, which may still be in a group that its weights are sent to. Chosen.
pub const COMMUNICATION_ALONE: f64 = GIB;
/// Workspaces of libraries, at most. Chosen.
pub const WORKSPACES: f64 = 1.5 * GIB;
/// Part of the allocated memory that may be lost between blocks, at most. Chosen: half more than `LOST`, which was fitted.
pub const FRAGMENTS: f64 = 0.12;
/// Part of its nominal memory that a card offers at least. NVML: an H100 of 80 GiB reports 79.1 to 79.6 GiB.
pub const USABLE: f64 = 0.985;

// Bounds of a trainer.

/// Part of a model that adapters add at most. A rank of 128 on all matrices of Llama-2-7B has 4.8 %.
pub const MOST_ADAPTERS: f64 = 0.05;
/// Megatron-LM pads the vocabulary to a multiple of this for each tensor rank (`--make-vocab-size-divisible-by`).
pub const VOCABULARY_UNIT: f64 = 128.0;
/// Bytes of a logit, at most: of 16 bits, of 32 bits, and their gradients. Megatron-LM: `VocabParallelCrossEntropy`.
pub const MOST_OF_LOGIT: f64 = 12.0;
/// The same with a softmax and a scaled copy of 32 bits. NeMo-RL: `DistributedLogprob`; slime: `_VocabParallelLogProbEntropy`;
/// verl: `entropy_from_logits` with a gradient.
pub const MOST_OF_WIDE_LOGIT: f64 = 16.0;
/// The same where only chunks of them have 32 bits: scaled by a temperature, each with its gradient. NeMo-RL:
/// `ChunkedDistributedLogprob`.
pub const MOST_OF_NARROW_LOGIT: f64 = 8.0;
/// Bytes of a logit of a chunk, at most: verl's `_fused_linear_for_ppo_bwd` has ten tensors of 32 bits and two of 16.
pub const MOST_OF_CHUNK: f64 = 48.0;
/// Tokens of a chunk of fused logits. verl: `FusedLinearForPPO`, 512; SkyRL: `logprobs_chunk_size`, 1024.
pub const FUSED_CHUNK: f64 = 1024.0;
/// Logits of a token that are stored where its kernels are fused. verl: `vocab_per_split` of `efficient_entropy_backward`.
pub const FUSED_SPLIT: f64 = 9504.0;
/// Bytes of a parameter that the step of an Adam in 32 bits allocates. PyTorch: `_multi_tensor_adamw`, the roots of its moments.
pub const FOREACH: f64 = 4.0;
/// How many times the average of tokens an expert group may get. Chosen: more is not claimed.
pub const IMBALANCE: f64 = 4.0;
/// Part of the parameters that layers of attention must have to stand for a model. Chosen.
pub const MOST_OF_MODEL: f64 = 0.9;

// Bounds of an engine.

/// The most tokens and requests of a step where they are not stated. vLLM: `EngineArgs.get_batch_defaults`.
pub const MOST_IN_STEP: (f64, f64) = (16_384.0, 1024.0);
/// Bytes of a logit of a step, at most. Chosen: one of 16 bits and two of 32.
pub const MOST_OF_GENERATED: f64 = 10.0;
/// The same of vLLM, which measures a step that sorts the logits of all requests in 32 bits (`apply_top_k_top_p`). Chosen: a fifth
/// more than `SAMPLED`, which was fitted.
pub const MOST_OF_SAMPLED: f64 = 48.0;
/// Graphs that an engine captures, at most. Chosen: more is not claimed.
pub const GRAPHS: f64 = 4.0 * GIB;
/// Weights that an engine keeps in another layout, or twice, as a part of them, at most. Fitted to logs of engines (`kv-log`).
pub const REPACKED: f64 = 1.06;

/// How weights of 4 bits are stored: bytes of the scale of a weight, and to a multiple of what sizes of experts are padded.
#[derive(Clone, Copy)]
pub struct FourBits {
    /// Bytes of the scale of a weight.
    pub scale: f64,
    /// What the hidden size is padded to a multiple of.
    pub hidden: f64,
    /// What the width of an expert is padded to a multiple of.
    pub ffn: f64,
    /// Whether that is its width on a rank; else the whole width.
    pub pads_shards: bool,
}

/// At most. NVIDIA: `NVFP4` has a scale of 8 bits for 16 weights; vLLM: `Mxfp4MoEMethod.create_weights` on Blackwell.
pub const MOST_FOUR_BITS: FourBits = FourBits { scale: 1.0 / 16.0, hidden: 256.0, ffn: 256.0, pads_shards: true };

// The switch, and the host.

/// The bucket in which weights are sent. verl: `update_weights_bucket_megabytes`, 2048.
pub const BUCKET: f64 = 2.0 * GIB;
/// The object store of a node. Ray: `DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES`, 200e9.
pub const STORE: f64 = 200.0 * GIB;
/// Buffers of offloading. DeepSpeed: `additional_buffer_factor` of `estimate_zero2_model_states_mem_needs`.
pub const OFFLOADING: f64 = 1.5;

// The likely value of a trainer.

/// The fitted numbers of a framework.
pub struct Fit {
    /// Bytes that a layer stores, as a part of the tensors that its backward pass reads.
    pub stored: f64,
    /// Bytes for each logit: of 16 and of 32 bits, with their gradients. Without a backward pass it is half of them.
    pub logit: f64,
    /// Copies at the step of an optimizer, as a part of their upper bound.
    pub copies: f64,
}

/// Bytes of a logit where only chunks of them have 32 bits: 16 bits and the gradient. NeMo-RL: `ChunkedDistributedLogprob`.
pub const NARROW_LOGIT: f64 = 4.0;
/// Bytes of a logit whose gradient replaces it: 16 bits, and as many once more while the gradient is divided by the temperature.
/// verl: `FSDPEngine.prepare_model_outputs`; SkyRL: `HFModelWrapper.forward`, both with flash-attn's `cross_entropy_loss` in place.
pub const LOGIT_IN_PLACE: f64 = 4.0;
/// Bytes of a logit of a chunk: half of `MOST_OF_CHUNK`. Chosen.
pub const CHUNK_LOGIT: f64 = 24.0;

/// Fitted to 132 peaks of Megatron-LM (`train-peak`).
pub const MEGATRON: Fit = Fit { stored: 1.05, logit: 7.3, copies: 0.42 };
/// Fitted to 34 peaks of FSDP2 (`fsdp_peaks`), half of them with logits of 32 bits.
pub const FSDP: Fit = Fit { stored: 1.5, logit: 8.0, copies: 0.0 };
/// Not fitted, since one peak is published: the numbers of FSDP, since both run the layers of Transformers.
pub const DEEPSPEED: Fit = FSDP;

/// Part of its layers' tensors that a selective recompute stores. Fitted to the runs of Megatron-Bridge that fit (`ran`).
pub const SELECTIVE: f64 = 0.65;
/// Part that stays of activations where matrices are multiplied in 8 bits. Fitted to the same runs.
pub const EIGHT_BITS: f64 = 0.7;
/// Tokens of an average sequence, as a part of the longest. Fitted to the batch sizes that verl's LoRA scripts found (`batch-search`).
pub const AVERAGE: f64 = 0.35;
/// With so many more sequences the average decides, and not the longest one. Fitted to the same scripts.
pub const SEQUENCES: f64 = 50.0;
/// Tokens of a micro-batch that is filled up to a number of tokens. Fitted to one published peak of verl.
pub const FILLED: f64 = 0.85;
/// Adapters and their optimizer, as a part of the weights of a model: a rank of 32 has 1 % of the parameters, at 18 bytes.
pub const ADAPTERS: f64 = 0.09;
/// Bytes that DeepSpeed gathers ahead: `stage3_max_live_parameters`, 1e9 in 16 bits, or its two buckets of 5e8.
pub const LIVE: f64 = 2e9;
/// Bytes of a softmax over scores that are stored: scores, their softmax in 16 bits, and a mask (arXiv 2205.05198).
pub const SCORES: f64 = 5.0;

// The likely value of what sleeps.

/// What a process keeps while it sleeps: its context. Measured of vLLM: 0.76 GiB (`asleep`).
pub const ASLEEP: f64 = GIB;
/// What an engine keeps in a tensor group. Measured of vLLM: 2.4 and 7.2 GiB (`asleep`), whose geometric mean this is.
pub const GROUP_ASLEEP: f64 = 4.1 * GIB;

// The likely value of an engine.

/// What the activations of a step need, as a part of their upper bound. Fitted to start-up lines of vLLM (`kv-log`).
pub const STEP: f64 = 0.55;
/// Bytes of a logit of a step of vLLM: copies of 16 and 32 bits, the sorted ones with their indices, and what sorting needs. Fitted to
/// five logs, which have 39 to 49 with all else of a step: of Llama-3.1-8B and Qwen2.5-14B with 256 requests (`kv-09`,
/// vllm-project/vllm#13061), and of Qwen3-235B-A22B and gpt-oss-120b with 1,024 (#21348, #23278, #27508).
pub const SAMPLED: f64 = 40.0;
/// What an engine needs besides for libraries. Fitted to the same lines.
pub const LIBRARIES: f64 = 0.25 * GIB;
/// Tokens and requests of a step of vLLM where they are not stated, on a large card and on others.
pub struct UsualSteps {
    /// On a card of `LARGE_CARD` or more that is no A100.
    pub large: (f64, f64),
    /// On any other card.
    pub other: (f64, f64),
}

/// The steps of vLLM's class `LLM`. vLLM: `EngineArgs.get_batch_defaults`, `UsageContext.LLM_CLASS`.
pub const LLM_STEPS: UsualSteps = UsualSteps { large: (16_384.0, 1024.0), other: (8192.0, 256.0) };
/// The steps of vLLM's server. vLLM: `EngineArgs.get_batch_defaults`, `UsageContext.OPENAI_API_SERVER`.
pub const SERVER_STEPS: UsualSteps = UsualSteps { large: (8192.0, 1024.0), other: (2048.0, 256.0) };
/// The steps of an `AsyncLLM` or `LLMEngine`, on any card. vLLM: `SchedulerConfig.DEFAULT_MAX_NUM_BATCHED_TOKENS`.
pub const ENGINE_STEPS: UsualSteps = UsualSteps { large: (2048.0, 128.0), other: (2048.0, 128.0) };
/// A card with so many bytes has larger steps. vLLM: `EngineArgs.get_batch_defaults`.
pub const LARGE_CARD: f64 = 70.0 * GIB;
/// Tokens of a step of other engines where they are not stated, unless a request is longer; its requests. Chosen.
pub const USUAL_STEP: (f64, f64) = (2048.0, 256.0);
/// The longest step that is assumed of other engines: longer requests are read in several. Chosen.
pub const LONGEST_STEP: f64 = 8192.0;
/// Tokens of a request that a vLLM of unknown version may read in one step. vLLM 0.6 reads requests of up to so many whole
/// (`EngineArgs.create_engine_config`, `SchedulerConfig`); that it reads so many of longer ones is chosen.
pub const LONGEST_WHOLE: f64 = 32_768.0;
/// Room beside a request that an engine surely starts with: with less, its version decides. Runs of verl left 0.1 to 0.6 GiB, and
/// vLLM refused with 1.4 (vllm-project/vllm#10517).
pub const SPARE: f64 = 1.5 * GIB;
/// An engine that lacks more than this likely does not start. Chosen: runs of verl started that lack 0.1 GiB by these numbers.
pub const SHORT: f64 = 0.25 * GIB;
/// Weights with their padding. Fitted to logs of engines (`kv-log`).
pub const PADDED: f64 = 1.01;
/// Weights of a quantized checkpoint, as a part of their lower bound, at most: some layers keep 16 bits. Chosen.
pub const QUANTIZED: f64 = 1.25;
/// Experts of 4 bits. The Microscaling Formats of the OCP have a scale of 8 bits for 32 weights (`MXFP4`); vLLM:
/// `Mxfp4MoEMethod.create_weights` with the kernels of Marlin. Other formats (AWQ, GPTQ) are not padded: of the models in the
/// table only those of MXFP4 have whole widths that need it, so shards are not padded either.
pub const FOUR_BITS: FourBits = FourBits { scale: 1.0 / 32.0, hidden: 256.0, ffn: 128.0, pads_shards: false };
/// The length that an engine serves if no length is stated. Chosen.
pub const USUAL_LENGTH: f64 = 4096.0;
/// The share of an engine whose config states none. vLLM: `gpu_memory_utilization`; TensorRT-LLM: `free_gpu_memory_fraction`.
pub const SHARE: f64 = 0.9;
/// The same of SGLang: its `mem_fraction_static` on a card of 80 GiB.
pub const SGLANG_SHARE: f64 = 0.88;

// What a card needs beside an allocator.

/// Blocks that the allocator loses, as a part of what it holds. Fitted to the runs that fit (`ran`).
pub const LOST: f64 = 0.08;
/// The context and the buffers of collectives of a process. Fitted to the same runs.
pub const BUFFERS: f64 = 2.0 * GIB;
