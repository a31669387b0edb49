//! Faults with the texts that a reader sees, and the closed list of codes.

use std::ops::Range;

macro_rules! codes {
    ($($name:ident = $slug:literal, $holds:literal;)*) => {
        /// The rule that a fault breaks. The list is closed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $(#[doc = $holds] $name,)* }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// The stable, machine-readable name of the code: `not-multiple`.
            pub fn slug(self) -> &'static str {
                match self { $(Code::$name => $slug,)* }
            }
        }
    };
}

codes! {
    // The placement language.
    Syntax = "syntax", "the text does not match the grammar";
    ReversedRange = "reversed-range", "a range ends before it starts";
    EmptyPlacement = "empty-placement", "a placement has no segment";
    ResourceOutOfRange = "resource-out-of-range", "a resource rank is outside the selected node groups";
    DuplicateResource = "duplicate-resource", "a component names a resource twice";
    ResourceOrder = "resource-order", "resource ranks do not ascend across the component";
    ProcessStart = "process-start", "process ranks do not start at 0";
    ProcessGap = "process-gap", "process ranks are not continuous and ascending, or one appears twice";
    AllProcesses = "all-processes", "`all` appears after the colon";
    NotMultiple = "not-multiple", "neither size of a segment is a multiple of the other";
    SpansNodes = "spans-nodes", "one process would need two nodes";
    MixedHardware = "mixed-hardware", "one process would need two hardware types";
    TooManyProcesses = "too-many-processes", "a component, or a plan, has more than 16,777,216 processes";
    NoResources = "no-resources", "the selected node groups have no resource of the required kind";
    ExcludedResource = "excluded-resource", "a component names a node or an accelerator that is excluded";
    // The cluster section.
    InvalidYaml = "invalid-yaml", "the file is not valid YAML";
    DuplicateKey = "duplicate-key", "a mapping in the file repeats a key";
    NoComponents = "no-components", "a file places no component";
    MissingKey = "missing-key", "a required key is missing";
    UnknownKey = "unknown-key", "a mapping has an unknown key";
    InvalidValue = "invalid-value", "a value has the wrong type or is outside its limits";
    UnknownComponent = "unknown-component", "the config has no component of the requested name";
    EmptyName = "empty-name", "a component or node group has an empty name";
    DuplicateComponent = "duplicate-component", "a component is placed twice";
    UnknownNodeGroup = "unknown-node-group", "a component selects an unknown node group";
    DuplicateNodeGroup = "duplicate-node-group", "two node groups have the same label";
    ReservedLabel = "reserved-label", "a node group uses a reserved label";
    NodeOutOfRange = "node-out-of-range", "a node rank is outside the cluster or its node group";
    OverlappingGroups = "overlapping-groups", "a component selects the same resources through two node groups";
    OverlappingEnv = "overlapping-env", "two env_configs of a node group share a node";
    DuplicateEnvVar = "duplicate-env-var", "a node group sets an environment variable twice on one node";
    ReservedEnvVar = "reserved-env-var", "a node group sets a variable that the plan sets";
    DuplicateHardware = "duplicate-hardware", "the same hardware is configured twice";
    TooFewNodes = "too-few-nodes", "the config needs more nodes than the inventory has";
    InvalidInventory = "invalid-inventory", "an inventory contradicts itself";
    UnknownLevel = "unknown-level", "the cluster has no level of this name";
    BadNodeRank = "bad-node-rank", "a launcher sets an invalid node rank";
    // RLinf's placement modes: `ModelParallelComponentPlacement`.
    ModeUnclear = "mode-unclear", "a placement fits none of RLinf's modes";
    AutoOrder = "auto-order", "the roles are not in the order that `auto_scheduler` needs";
    AutoDp = "auto-dp", "a data size that `auto_scheduler` needs does not divide a minibatch";
    // The plan.
    InvalidPlan = "invalid-plan", "a saved plan cannot be read";
    ShareOverflow = "share-overflow", "the shares of an accelerator add up to more than one";
    VisibilityOrder = "visibility-order", "own-first is requested for accelerators whose mask has no order";
    BindingUnmet = "binding-unmet", "a process cannot be bound to the cores that its component requests";
    PlanMismatch = "plan-mismatch", "a cluster, or a pinned program, does not fit the plan";
    OrderNotKept = "order-not-kept", "a trainer sorts the nodes of a pool in another order than the plan";
    NeverReserved = "never-reserved", "a trainer asks for CPUs, memory or resources that the nodes cannot reserve";
    // Programs that are pinned to a plan.
    HookMissing = "hook-missing", "a node cannot load the hook that binds a program to a plan";
    NotPinned = "not-pinned", "a program asks Ray for places without the hook, or on another cluster";
    NodeLost = "node-lost", "a node of the plan leaves the cluster while a pinned program needs it";
    WrongPlace = "wrong-place", "a rank of a pinned program runs in another place than planned";
    // Parallel groups.
    ParallelNotDivisible = "parallel-not-divisible", "the parallel sizes do not divide the devices of a component";
    ParallelIdle = "parallel-idle", "the parallel sizes leave devices of a process or a component unused";
    ParallelConflict = "parallel-conflict", "two places of a config state different parallel sizes for a component";
    NoWeightSender = "no-weight-sender", "no sender has the weights that a receiver needs";
    GroupSpans = "group-spans", "a group spans nodes or domains that it should stay within";
    SegmentIncomplete = "segment-incomplete", "the nodes of a plan cannot be whole segments within domains";
    DomainTooSmall = "domain-too-small", "nodes must share a domain, but no domain has, or may use, that many";
    NoSpare = "no-spare", "a failed node has no spare with the same hardware";
    RailMismatch = "rail-mismatch", "a data group uses different local indices on equal nodes";
    // Memory.
    UnknownModel = "unknown-model", "a model is neither a known name nor an existing file";
    ModelKeys = "model-keys", "a config.json lacks the sizes of its model";
    MemoryExceeded = "memory-exceeded", "a phase needs more memory than an accelerator has";
    EngineShare = "engine-share", "the weights of an engine and one request exceed its share of an accelerator";
    HostMemory = "host-memory", "the ranks of a node keep more on the host than it has";
    // The files of launchers.
    EmitUneven = "emit-uneven", "a launcher starts only equal nodes, but those of the plan differ";
    EmitOrder = "emit-order", "a launcher numbers ranks node by node, but those of the plan return to an earlier node";
    EmitTopology = "emit-topology", "a launcher cannot ask for the domains that `keep` or `segment` requires";
    EmitNeedsQueue = "emit-needs-queue", "a plan has `keep` or `segment`, which Kubernetes respects only with a queue";
    EmitTooManyGroups = "emit-too-many-groups", "a plan has more groups of pods than Kueue allows";
    EmitResourceKey = "emit-resource-key", "rankplan knows no resource that counts the accelerators of a type";
    EmitLevelKey = "emit-level-key", "a level of the network is not the key of a node label";
    EmitSlurmVersion = "emit-slurm-version", "a release of Slurm lacks an option that the plan needs";
    EmitNoAddress = "emit-no-address", "a file must name hosts that the inventory does not name";
    EmitNoLevels = "emit-no-levels", "a topology is written for nodes without levels";
    EmitHardware = "emit-hardware", "a component uses hardware of fixed hosts, which a launcher does not choose";
    EmitRay = "emit-ray", "a launcher starts a process for each rank, but the trainer starts its own, on Ray";
    EmitCommand = "emit-command", "nothing tells what starts the trainer inside a job, or its script starts Ray itself";
    EmitConflict = "emit-conflict", "the user's own file contradicts the plan";
    EmitChanged = "emit-changed", "a file that rankplan wrote was changed and contradicts its plan";
    EmitName = "emit-name", "a name is too long for a launcher, or has characters that it does not allow";
    EmitTooLarge = "emit-too-large", "a plan is too large for the file of a launcher";
    // Tuning.
    MissingTimes = "missing-times", "a component to tune has no times";
    SizeDoesNotFit = "size-does-not-fit", "a component fits on no number of accelerators, or was measured on a number that its sizes do not divide";
    PrecedenceCycle = "precedence-cycle", "components to tune wait for each other";
    NoSchedule = "no-schedule", "no schedule of the components to tune fits on the accelerators";
    TimesGrow = "times-grow", "a component takes longer on more accelerators";
    ColocatedTimes = "colocated-times", "the times of separate accelerators are guessed from those of shared ones";
    NoRuns = "no-runs", "costs of an asynchronous run have no measured run, or none of the kind that they need";
    BadStaleness = "bad-staleness", "a staleness is no number of 0 or more";
    BadRule = "bad-rule", "a rule of asynchronous runs is unknown";
    PartsExceedStep = "parts-exceed-step", "the parts of a measured run take longer than its step";
    // Transitions.
    OtherJob = "other-job", "two plans are of different jobs";
    TransitionStuck = "transition-stuck", "no safe order of the steps from one plan to another exists";
    // Job files.
    JobConflict = "job-conflict", "a job file and another file, or two keys of it, contradict each other";
    Exists = "exists", "a file that a command would write exists already";
    // Other packages.
    GuestFailed = "guest-failed", "a dialect, launcher or command of another package cannot be used";
}

/// A place in the text with a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Bytes of the text, end exclusive.
    pub span: Range<usize>,
    /// The note; may be empty.
    pub text: String,
}

/// One fault: the broken rule, how to fix the text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The broken rule.
    pub code: Code,
    /// The value found, and the values allowed.
    pub message: String,
    /// A correct text, or how to write one.
    pub help: Option<String>,
    /// Places in the text; the first one is the fault's own.
    pub labels: Vec<Label>,
}

impl Diagnostic {
    /// A fault without help or a place.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Diagnostic { code, message: message.into(), help: None, labels: Vec::new() }
    }

    /// The same fault with this help line.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same fault with one more place.
    #[must_use]
    pub fn label(mut self, span: Range<usize>, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into() });
        self
    }
}

impl From<Box<Diagnostic>> for Diagnostic {
    fn from(boxed: Box<Diagnostic>) -> Self {
        *boxed
    }
}
