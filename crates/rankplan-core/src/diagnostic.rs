//! What a fault looks like to a reader, and the closed list of codes.

use std::ops::Range;

macro_rules! codes {
    ($($name:ident = $slug:literal, $holds:literal;)*) => {
        /// The rule that a fault breaks. The list is closed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $(#[doc = $holds] $name,)* }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// The stable name of the code, for machines: `not-multiple`.
            pub fn slug(self) -> &'static str {
                match self { $(Code::$name => $slug,)* }
            }
        }
    };
}

codes! {
    // The placement language.
    Syntax = "syntax", "the text is not of the grammar";
    ReversedRange = "reversed-range", "a range ends before it starts";
    EmptyPlacement = "empty-placement", "a placement has no segment";
    ResourceOutOfRange = "resource-out-of-range", "a resource rank is not in the selected node groups";
    DuplicateResource = "duplicate-resource", "a resource is named twice in one component";
    ResourceOrder = "resource-order", "resource ranks do not ascend across the component";
    ProcessStart = "process-start", "process ranks do not start at 0";
    ProcessGap = "process-gap", "process ranks are not continuous and ascending, or one is named twice";
    AllProcesses = "all-processes", "`all` stands after the colon";
    NotMultiple = "not-multiple", "neither of the two sizes of a segment is a multiple of the other";
    SpansNodes = "spans-nodes", "one process would need two nodes";
    MixedHardware = "mixed-hardware", "one process would need two hardware types";
    TooManyProcesses = "too-many-processes", "a component has more than 16,777,216 processes";
    NoResources = "no-resources", "the selected node groups have nothing of the kind";
    // The cluster section.
    InvalidYaml = "invalid-yaml", "the file is not YAML";
    DuplicateKey = "duplicate-key", "a mapping of the file has a key twice";
    MissingKey = "missing-key", "a key that must be there is not";
    UnknownKey = "unknown-key", "a key is not known where it stands";
    InvalidValue = "invalid-value", "a value is not of the kind that its key takes";
    UnknownComponent = "unknown-component", "a component is asked for that the config does not have";
    EmptyName = "empty-name", "a component or a node group has no name";
    DuplicateComponent = "duplicate-component", "a component is placed twice";
    UnknownNodeGroup = "unknown-node-group", "a component selects a node group that is not there";
    DuplicateNodeGroup = "duplicate-node-group", "two node groups have one label";
    ReservedLabel = "reserved-label", "a node group takes a label that is reserved";
    NodeOutOfRange = "node-out-of-range", "a node rank is not in the cluster, or not in its node group";
    OverlappingGroups = "overlapping-groups", "one component selects a node's resources through two groups";
    OverlappingEnv = "overlapping-env", "two env_configs of a node group have a node in common";
    DuplicateEnvVar = "duplicate-env-var", "a node gets one environment variable twice from a node group";
    ReservedEnvVar = "reserved-env-var", "a node group sets a variable that the plan sets";
    DuplicateHardware = "duplicate-hardware", "a piece of hardware is configured twice";
    TooFewNodes = "too-few-nodes", "the config wants more nodes than the inventory has";
    InvalidInventory = "invalid-inventory", "an inventory contradicts itself";
    // The plan.
    InvalidPlan = "invalid-plan", "a saved plan cannot be read";
    ShareOverflow = "share-overflow", "the shares of an accelerator add up to more than one";
    PlanMismatch = "plan-mismatch", "a plan is launched on a cluster that it was not made for";
}

/// A place in the text and a word on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Bytes of the text, end exclusive.
    pub span: Range<usize>,
    /// What is to be said of the place; may be empty.
    pub text: String,
}

/// One fault: what was found and is allowed, what to write instead, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The rule that is broken.
    pub code: Code,
    /// What was found, and what is allowed.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    /// Places in the text; the first is that of the fault.
    pub labels: Vec<Label>,
}

impl Diagnostic {
    /// A fault without a help line or a place.
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
