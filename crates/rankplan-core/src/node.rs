//! The record of a node: its accelerators, names, labels, marks and hardware facts. Equal nodes share one.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, OnceLock};

use smol_str::{SmolStr, ToSmolStr};

use crate::amounts::{Amount, Amounts, custom_value};
use crate::machine::groups_text;
use crate::pairs::Pairs;
use crate::rank_set::RankSet;
use crate::read::json::json;
use crate::read::value::Value;

/// The type of a node without accelerators.
pub const NO_ACCEL: &str = "NO_ACCEL";

/// The type of accelerators whose type is not stated.
pub const USUAL_TYPE: &str = "NV_GPU";

/// The accelerators of a node. Records that differ only in other fields share them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeSpec {
    /// `NV_GPU`, ...; `NO_ACCEL` for a node without accelerators.
    pub accelerator_type: String,
    /// The node's own name of each accelerator, by local index: `["0", "1"]`, UUIDs, MIG ids.
    pub accelerator_ids: Vec<String>,
}

/// The most accelerators of a node whose record is kept for all nodes alike.
const MOST_SHARED: usize = 16;

/// The facts of a machine of which none is known.
static NO_FACTS: LazyLock<Arc<Facts>> = LazyLock::new(Arc::default);

static SHARED: [OnceLock<Arc<NodeSpec>>; MOST_SHARED + 1] = [const { OnceLock::new() }; MOST_SHARED + 1];

impl NodeSpec {
    /// So many accelerators of the usual type whose ids are their indices, or no accelerators.
    pub fn usual(number: usize) -> Arc<Self> {
        let new = || {
            let accelerator_type = if number == 0 { NO_ACCEL } else { USUAL_TYPE }.to_owned();
            Arc::new(NodeSpec {
                accelerator_type,
                accelerator_ids: (0..number).map(|index| index.to_string()).collect(),
            })
        };
        SHARED.get(number).map_or_else(new, |shared| shared.get_or_init(new).clone())
    }
}

/// Everything that is known of a node, but its rank.
///
/// Two records are equal if their facts are, whether or not these were stated: see [`Node::is_like`].
#[derive(Clone, Debug)]
pub struct Node {
    /// The type and the ids of its accelerators.
    pub accelerators: Arc<NodeSpec>,
    /// The model of its accelerators.
    pub model: Option<String>,
    /// Its address. Short names, as most are, need no memory of their own.
    pub ip: Option<SmolStr>,
    /// Its hostname.
    pub hostname: Option<SmolStr>,
    /// Its labels.
    pub labels: Pairs<SmolStr, SmolStr>,
    /// The number of pieces of other hardware, by type.
    pub hardware: Pairs<String, u32>,
    /// Whether processes may use it.
    pub healthy: bool,
    /// The local indices of accelerators that no process may use.
    pub unhealthy: RankSet,
    /// The job that has it, if another one does.
    pub taken: Option<String>,
    /// What can be reserved there besides accelerators, as Ray, Slurm or Kubernetes counts it.
    pub reservable: Amounts,
    /// The facts of the machine.
    pub facts: Arc<Facts>,
    /// The names of the fields that its source states.
    pub stated: Vec<&'static str>,
}

/// The facts of a machine. Every one may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The CPUs that processes may use, by NUMA node.
    pub numa: Pairs<u32, RankSet>,
    /// The size of each NUMA node with memory, in MiB.
    pub memory: Pairs<u32, u64>,
    /// The NUMA nodes of each package.
    pub sockets: Vec<RankSet>,
    /// The threads of each physical core.
    pub cores: Vec<RankSet>,
    /// The CPUs of each largest cache.
    pub caches: Vec<RankSet>,
    /// The network cards.
    pub nics: Vec<Nic>,
    /// The accelerators, by local index.
    pub devices: Vec<Device>,
}

/// The facts of a network card.
#[derive(Clone, Debug)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// Whether its first port is active.
    pub active: bool,
    /// Whether it is part of a bond.
    pub bonded: bool,
    /// In Gbit/s.
    pub rate: Option<f64>,
    /// Its PCI address.
    pub pci: Option<String>,
    /// Its NUMA node.
    pub numa: Option<u32>,
}

/// The facts of an accelerator beside its id. Every one may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Its id for the driver.
    pub uuid: Option<String>,
    /// Its PCI address.
    pub pci: Option<String>,
    /// Its NUMA node.
    pub numa: Option<u32>,
    /// Its model.
    pub model: Option<String>,
    /// Its memory, in MiB.
    pub memory: Option<u64>,
    /// The network card to use.
    pub nic: Option<String>,
    /// How far that card is.
    pub distance: Option<String>,
    /// Why it is not healthy.
    pub problem: Option<String>,
}

impl Nic {
    /// Its facts, with the bits of its rate: the same number has the same bits.
    fn key(&self) -> (&str, bool, bool, Option<u64>, Option<&str>, Option<u32>) {
        (&self.name, self.active, self.bonded, self.rate.map(f64::to_bits), self.pci.as_deref(), self.numa)
    }

    fn fields(&self) -> Value {
        Value::map([
            ("name", Value::from(self.name.as_str())),
            ("active", Value::Bool(self.active)),
            ("bonded", Value::Bool(self.bonded)),
            ("rate", self.rate.map_or(Value::Null, Value::from)),
            ("pci", text(self.pci.as_ref()).unwrap_or(Value::Null)),
            ("numa", self.numa.map_or(Value::Null, Value::from)),
        ])
    }

    /// The facts that are not the usual ones.
    fn described(&self) -> Value {
        let facts = [
            ("name", Some(Value::from(self.name.as_str()))),
            ("active", (!self.active).then_some(Value::Bool(false))),
            ("bonded", self.bonded.then_some(Value::Bool(true))),
            ("rate", self.rate.map(Value::from)),
            ("pci", text(self.pci.as_ref())),
            ("numa", self.numa.map(Value::from)),
        ];
        present(facts)
    }
}

impl PartialEq for Nic {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Nic {}

impl Hash for Nic {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl Device {
    /// The known facts.
    fn described(&self) -> Vec<(&'static str, Value)> {
        let facts = [
            ("uuid", text(self.uuid.as_ref())),
            ("pci", text(self.pci.as_ref())),
            ("numa", self.numa.map(Value::from)),
            ("model", text(self.model.as_ref())),
            ("memory", self.memory.map(|size| Value::from(size as i64))),
            ("nic", text(self.nic.as_ref())),
            ("distance", text(self.distance.as_ref())),
            ("problem", text(self.problem.as_ref())),
        ];
        facts.into_iter().filter_map(|(name, fact)| Some((name, fact?))).collect()
    }
}

impl Facts {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Facts::default()
    }

    /// The known facts by name, without those of the accelerators.
    fn described(&self) -> Vec<(&'static str, Value)> {
        let sets = |sets: &[RankSet]| Value::list(sets.iter().map(|set| Value::from(set.to_string())));
        let groups = |sets: &[RankSet]| Value::list(groups_text(sets).into_iter().map(Value::from));
        let facts = [
            ("numa", by_node(&self.numa, |cpus| Value::from(cpus.to_string()))),
            ("memory", by_node(&self.memory, |size| Value::from(*size as i64))),
            ("sockets", sets(&self.sockets)),
            ("cores", groups(&self.cores)),
            ("caches", groups(&self.caches)),
            ("nics", Value::list(self.nics.iter().map(Nic::described))),
        ];
        facts.into_iter().filter(|(_, fact)| !fact.is_empty()).collect()
    }

    /// The facts as JSON: equal for equal facts, empty without any.
    pub fn json(&self) -> String {
        if self.is_empty() {
            return String::new(); // quick for a large cluster
        }
        let mut facts = self.described();
        if !self.devices.is_empty() {
            facts.push(("devices", Value::list(self.devices.iter().map(|device| Value::map(device.described())))));
        }
        json(&Value::map(facts))
    }
}

fn by_node<T>(sizes: &Pairs<u32, T>, value: impl Fn(&T) -> Value) -> Value {
    Value::Map(sizes.iter().map(|(&node, size)| (Value::from(node), value(size))).collect())
}

fn by_name<T>(sizes: &Pairs<u32, T>, value: impl Fn(&T) -> Value) -> Value {
    Value::Map(sizes.iter().map(|(node, size)| (Value::from(node.to_string()), value(size))).collect())
}

fn text(text: Option<impl AsRef<str>>) -> Option<Value> {
    text.map(|text| Value::from(text.as_ref()))
}

fn present<const N: usize>(facts: [(&'static str, Option<Value>); N]) -> Value {
    Value::map(facts.into_iter().filter_map(|(name, fact)| Some((name, fact?))))
}

impl Node {
    /// The record of a node with these accelerators, of which nothing else is known.
    pub fn new(accelerators: Arc<NodeSpec>) -> Self {
        Node {
            accelerators,
            model: None,
            ip: None,
            hostname: None,
            labels: Pairs::default(),
            hardware: Pairs::default(),
            healthy: true,
            unhealthy: RankSet::default(),
            taken: None,
            reservable: Amounts::default(),
            facts: NO_FACTS.clone(),
            stated: Vec::new(),
        }
    }

    /// Whether its source stated a field.
    pub fn states(&self, field: &str) -> bool {
        self.stated.contains(&field)
    }

    /// Set it as not healthy, or as taken by a job; if accelerators are given, only these are not healthy.
    pub fn mark(&mut self, accelerators: Option<&RankSet>, job: Option<&str>) {
        let field = match (accelerators, job) {
            (Some(local), _) => {
                self.unhealthy = self.unhealthy.union(local);
                "unhealthy"
            }
            (None, Some(job)) => {
                self.taken = Some(job.to_owned());
                "taken"
            }
            (None, None) => {
                self.healthy = false;
                "healthy"
            }
        };
        if !self.states(field) {
            self.stated.push(field);
        }
    }

    /// The number of its accelerators.
    pub fn num_accelerators(&self) -> u32 {
        self.accelerators.accelerator_ids.len() as u32
    }

    /// Whether an inventory need not tell two nodes apart: they are equal, and both state the ids of their accelerators or
    /// neither does.
    pub fn is_like(&self, other: &Self) -> bool {
        self == other && self.states(IDS) == other.states(IDS)
    }

    /// The stated fields as plain values, as in an inventory file: those of `ranks` first.
    pub fn described(&self, ranks: &RankSet) -> Value {
        let ids = || self.accelerators.accelerator_ids.iter().map(|id| Value::from(id.as_str()));
        let devices = !self.facts.devices.is_empty();
        let accelerators = if devices { self.described_devices() } else { Value::from(self.num_accelerators()) };
        let kind = self.accelerators.accelerator_type.as_str();
        let fields = [
            ("ranks", Some(Value::Text(ranks.to_smolstr()))),
            (COUNT, Some(accelerators)),
            ("accelerator_type", (kind != USUAL_TYPE && self.states("accelerator_type")).then(|| Value::from(kind))),
            ("accelerator_model", text(self.model.as_ref())),
            (IDS, (self.states(IDS) && !devices).then(|| Value::list(ids()))),
            ("ip", text(self.ip.as_ref())),
            ("hostname", text(self.hostname.as_ref())),
            ("labels", (!self.labels.is_empty()).then(|| self.labels_value())),
            ("hardware", (!self.hardware.is_empty()).then(|| self.hardware_value())),
            ("healthy", (!self.healthy).then_some(Value::Bool(false))),
            ("unhealthy", (!devices && !self.unhealthy.is_empty()).then(|| Value::from(self.unhealthy.to_string()))),
            ("taken", text(self.taken.as_ref())),
        ];
        let fields = fields.into_iter().filter_map(|(name, field)| Some((name, field?)));
        let fields = fields.filter(|(name, field)| *name == "healthy" || !field.is_empty());
        let fields = fields.chain(self.reservable.named(RESERVABLE));
        if self.facts.is_empty() {
            return Value::map(fields);
        }
        Value::map(fields.chain(self.facts.described()))
    }

    /// Every field as a plain value, those that are not known as null or empty.
    pub fn fields(&self) -> Value {
        let (accelerators, facts) = (&self.accelerators, &self.facts);
        let or_null = |known: Option<Value>| known.unwrap_or(Value::Null);
        let sets = |sets: &[RankSet]| Value::list(sets.iter().map(|set| Value::from(set.to_string())));
        let groups = |sets: &[RankSet]| Value::list(groups_text(sets).into_iter().map(Value::from));
        Value::map([
            (COUNT, Value::from(self.num_accelerators())),
            ("accelerator_type", Value::from(accelerators.accelerator_type.as_str())),
            ("accelerator_model", or_null(text(self.model.as_ref()))),
            (IDS, Value::list(accelerators.accelerator_ids.iter().map(|id| Value::from(id.as_str())))),
            ("ip", or_null(text(self.ip.as_ref()))),
            ("hostname", or_null(text(self.hostname.as_ref()))),
            ("labels", self.labels_value()),
            ("hardware", self.hardware_value()),
            ("healthy", Value::Bool(self.healthy)),
            ("unhealthy", Value::from(self.unhealthy.to_string())),
            ("taken", or_null(text(self.taken.as_ref()))),
            ("cpus", self.reservable.cpus.map_or(Value::Null, Amount::value)),
            ("reservable_memory", self.reservable.memory.map_or(Value::Null, |size| Value::from(size as i64))),
            ("resources", custom_value(&self.reservable.custom)),
            ("numa", by_name(&facts.numa, |cpus| Value::from(cpus.to_string()))),
            ("memory", by_name(&facts.memory, |size| Value::from(*size as i64))),
            ("sockets", sets(&facts.sockets)),
            ("cores", groups(&facts.cores)),
            ("caches", groups(&facts.caches)),
            ("nics", Value::list(facts.nics.iter().map(Nic::fields))),
            ("devices", Value::list(facts.devices.iter().map(|device| Value::map(device.described())))),
        ])
    }

    fn labels_value(&self) -> Value {
        let pairs = self.labels.iter().map(|(key, label)| (Value::Text(key.clone()), Value::Text(label.clone())));
        Value::Map(pairs.collect())
    }

    fn hardware_value(&self) -> Value {
        Value::map(self.hardware.iter().map(|(kind, &count)| (kind.as_str(), count.into())))
    }

    /// The accelerators one by one, each with its id, its facts and whether it is healthy.
    fn described_devices(&self) -> Value {
        let ids = self.accelerators.accelerator_ids.iter().zip(&self.facts.devices).enumerate();
        Value::list(ids.map(|(index, (id, device))| {
            let id = self.states(IDS).then(|| ("id", Value::from(id.as_str())));
            let broken = self.unhealthy.contains(index as u32).then_some(("healthy", Value::Bool(false)));
            Value::map(id.into_iter().chain(device.described()).chain(broken))
        }))
    }
}

/// The names of the fields with the number of accelerators and with their ids.
pub(crate) const COUNT: &str = "accelerators";
pub(crate) const IDS: &str = "accelerator_ids";
/// The names of the fields with what can be reserved: CPUs, memory, custom resources.
pub(crate) const RESERVABLE: [&str; 3] = ["cpus", "reservable_memory", "resources"];

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || self.accelerators == other.accelerators
                && self.model == other.model
                && self.ip == other.ip
                && self.hostname == other.hostname
                && self.labels == other.labels
                && self.hardware == other.hardware
                && self.healthy == other.healthy
                && self.unhealthy == other.unhealthy
                && self.taken == other.taken
                && self.reservable == other.reservable
                && self.facts == other.facts
    }
}

impl Eq for Node {}

impl Hash for Node {
    /// Nodes with names have different ones, so the rest of their records is only compared.
    fn hash<H: Hasher>(&self, state: &mut H) {
        if self.ip.is_some() || self.hostname.is_some() {
            return (&self.ip, &self.hostname).hash(state);
        }
        let names = (&self.model, &self.labels);
        let marks = (&self.hardware, self.healthy, &self.unhealthy, &self.taken);
        (&self.accelerators, names, marks, &self.reservable, &self.facts).hash(state);
    }
}

impl From<NodeSpec> for Node {
    fn from(accelerators: NodeSpec) -> Self {
        Node::new(Arc::new(accelerators))
    }
}

impl From<NodeSpec> for Arc<Node> {
    fn from(accelerators: NodeSpec) -> Self {
        Arc::new(accelerators.into())
    }
}
