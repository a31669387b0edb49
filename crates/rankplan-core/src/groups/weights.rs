//! Which slots of a sender have the weights of which slots of a receiver.
//!
//! A sender's tensor group of `a` slots and a receiver's of `b` divide the same tensors. If `b` divides `a`, the slots
//! `j * k .. (j + 1) * k` of a sending group, `k = a / b`, together hold the part of slot `j` of a receiving group, and one of
//! them sends it. If `a` is 1, every sender has all weights.
//!
//! No sender has two receivers more than another. Within this limit, senders on the receiver's device come first, then those on
//! its node. Among maps that are equal in both, the one of RLinf is taken: the groups that can send take turns. Components
//! without a common device follow RLinf wherever that serves every receiver. RLinf:
//! `DisaggRankMapper._get_actor_rank_to_rollout_rank`; the same function of `CollocateRankMapper` gives senders on the receiver's
//! device if the rollout has the places that RLinf gives it.
//!
//! The map is about tensor parts. A trainer with pipeline, expert or shard groups gathers within them first.

use std::collections::HashSet;

use crate::diagnostic::{Code, Diagnostic};
use crate::groups::layout::Layout;
use crate::groups::parallel::{Groups, Kind};
use crate::groups::slots::Slots;
use crate::ids::NodeRank;
use crate::words::either;

/// One side of a weight map.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The component.
    pub name: &'a str,
    /// Its slots.
    pub slots: &'a Slots,
    /// Its groups.
    pub layout: &'a Layout,
}

impl Side<'_> {
    fn tensor(self) -> Groups {
        self.layout.groups(Kind::Tp)
    }
}

/// For every slot of a sender, the slots of a receiver that get its weights; each receiver slot has one sender.
#[derive(Clone, Debug)]
pub struct WeightMap {
    sender: Groups,
    receiver: Groups,
    /// By receiver slot, its sender, if the groups do not just take turns.
    chosen: Option<Chosen>,
}

/// How many receivers have their sender on their own device, and how many on their own node. More on devices is nearer; with
/// as many on devices, more on nodes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Nearness {
    on_device: u32,
    on_node: u32,
}

#[derive(Clone, Debug)]
struct Chosen {
    sender_of: Vec<u32>,
    /// By sender, the end of its receivers.
    ends: Vec<u32>,
    receivers: Vec<u32>,
}

/// Slots of the sender that hold the same tensors as some slots of the receiver. Both are numbered from 0 on.
#[derive(Clone, Copy)]
struct Class {
    sender: Groups,
    receiver: Groups,
    /// The position of the receivers in their tensor groups.
    part: u32,
}

impl Class {
    /// Sender slots of one tensor group per receiver slot of one.
    fn share(self) -> u32 {
        (self.sender.size() / self.receiver.size()).max(1)
    }

    fn senders(self) -> u32 {
        self.sender.len() * self.share()
    }

    fn receivers(self) -> u32 {
        if self.sender.size() == 1 { self.receiver.len() * self.receiver.size() } else { self.receiver.len() }
    }

    /// The slot of a sender.
    fn sender_slot(self, index: u32) -> u32 {
        let group = self.sender.get(index / self.share());
        group.map_or(0, |group| group.first + (self.part * self.share() + index % self.share()) * group.step)
    }

    /// The slot of a receiver.
    fn receiver_slot(self, index: u32) -> u32 {
        let (group, part) = if self.sender.size() == 1 {
            (index / self.receiver.size(), index % self.receiver.size())
        } else {
            (index, self.part)
        };
        self.receiver.get(group).map_or(0, |group| group.first + part * group.step)
    }
}

/// The classes of a map: one for each part of the tensors, or a single one if every sender has all weights.
fn classes(sender: Groups, receiver: Groups) -> impl Iterator<Item = Class> {
    let parts = if sender.size() == 1 { 1 } else { receiver.size() };
    (0..parts).map(move |part| Class { sender, receiver, part })
}

impl WeightMap {
    /// The weight map from one component to another.
    ///
    /// # Errors
    /// `no-weight-sender` if the receiver's tensor size does not divide the sender's, which is not 1.
    pub fn new(sender: Side<'_>, receiver: Side<'_>) -> Result<Self, Diagnostic> {
        let (from, to) = (sender.tensor(), receiver.tensor());
        if from.size() > 1 && !from.size().is_multiple_of(to.size()) {
            return Err(no_sender(sender, receiver));
        }
        let turns = WeightMap { sender: from, receiver: to, chosen: None };
        let shared = meet(sender.slots, receiver.slots);
        if !shared && rlinf_serves_all(sender, receiver) {
            return Ok(turns);
        }
        let turns_nearness = turns.nearness(sender.slots, receiver.slots);
        if turns_nearness.on_device == receiver.slots.len() {
            return Ok(turns);
        }
        let mut sender_of = vec![0; receiver.slots.len() as usize];
        for class in classes(from, to) {
            choose(class, sender.slots, receiver.slots, shared, &mut sender_of);
        }
        let nearest = WeightMap { chosen: Some(Chosen::new(sender_of, sender.slots.len())), ..turns };
        if turns_nearness >= nearest.nearness(sender.slots, receiver.slots) {
            return Ok(turns);
        }
        Ok(nearest)
    }

    /// How near the receivers are to their senders.
    fn nearness(&self, from: &Slots, to: &Slots) -> Nearness {
        let mut nearness = Nearness { on_device: 0, on_node: 0 };
        for (slot, (node, device)) in (0..).zip(to.places()) {
            let Some(sender) = self.sender_of(slot) else { continue };
            let (sender_node, sender_device) = from.place(sender);
            let same_node = sender_node == NodeRank(node);
            nearness.on_node += u32::from(same_node);
            nearness.on_device += u32::from(same_node && device.is_some() && sender_device == device);
        }
        nearness
    }

    /// How many sender slots there are.
    pub fn senders(&self) -> u32 {
        self.sender.len() * self.sender.size()
    }

    /// How many receiver slots there are.
    pub fn receivers(&self) -> u32 {
        self.receiver.len() * self.receiver.size()
    }

    /// The receivers of a sender, ascending.
    pub fn receivers_of(&self, sender: u32) -> Vec<u32> {
        if let Some(chosen) = &self.chosen {
            return chosen.receivers_of(sender).to_vec();
        }
        let (group, position) = (self.sender.index_of(sender), self.sender.position(sender));
        let share = (self.sender.size() / self.receiver.size()).max(1);
        let class = Class { sender: self.sender, receiver: self.receiver, part: position / share };
        let turns = (group * share + position % share..class.receivers()).step_by(class.senders() as usize);
        let mut slots: Vec<_> = turns.map(|index| class.receiver_slot(index)).collect();
        slots.sort_unstable();
        slots
    }

    /// The sender of a receiver.
    pub fn sender_of(&self, receiver: u32) -> Option<u32> {
        if let Some(chosen) = &self.chosen {
            return chosen.sender_of.get(receiver as usize).copied();
        }
        let (group, part) = (self.receiver.index_of(receiver), self.receiver.position(receiver));
        let class = Class { sender: self.sender, receiver: self.receiver, part };
        let index = if self.sender.size() == 1 { group * self.receiver.size() + part } else { group };
        let part = if self.sender.size() == 1 { 0 } else { part };
        (receiver < self.receivers()).then(|| Class { part, ..class }.sender_slot(index % class.senders()))
    }
}

impl Chosen {
    fn new(sender_of: Vec<u32>, senders: u32) -> Self {
        let mut ends = vec![0; senders as usize];
        sender_of.iter().for_each(|&sender| ends[sender as usize] += 1);
        let mut end = 0;
        for count in &mut ends {
            end += *count;
            *count = end;
        }
        let mut receivers: Vec<u32> = (0..sender_of.len() as u32).collect();
        receivers.sort_by_key(|&receiver| sender_of[receiver as usize]);
        Chosen { sender_of, ends, receivers }
    }

    fn receivers_of(&self, sender: u32) -> &[u32] {
        let start = (sender as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.receivers[start as usize..self.ends[sender as usize] as usize]
    }
}

/// Whether every receiver gets the weights by RLinf's rule for components that share no accelerator.
///
/// RLinf: `DisaggRankMapper.get_actor_rank_to_rollout_rank_map`, with the sizes that it asserts.
fn rlinf_serves_all(sender: Side<'_>, receiver: Side<'_>) -> bool {
    let (senders, receivers) = (sender.slots.len(), receiver.slots.len());
    let (from, to) = (sender.tensor().size(), receiver.tensor().size());
    let accepts = from.is_multiple_of(to) && receivers.is_multiple_of(from);
    accepts && (senders >= receivers || receivers.is_multiple_of(senders))
}

/// Whether two components have an accelerator in common.
fn meet(one: &Slots, other: &Slots) -> bool {
    if one.revisited.is_empty() {
        let mut sorted: Vec<_> = one.stretches.iter().collect();
        sorted.sort_unstable_by_key(|stretch| stretch.node);
        let uses = |(node, device)| {
            let stretch = sorted[..sorted.partition_point(|stretch| stretch.node <= node)].last()?;
            let devices = &one.patterns[stretch.pattern].devices;
            (node < stretch.node + stretch.nodes && devices.contains(&device)).then_some(())
        };
        return other.places().any(|place| place.1.is_some() && uses(place).is_some());
    }
    let used: HashSet<_> = one.places().collect();
    other.places().any(|place| place.1.is_some() && used.contains(&place))
}

/// A node and a device on it.
type Place = (NodeRank, Option<u16>);
/// A place, and the index of a sender or receiver there.
type Placed = (Place, u32);

/// Choose the senders of a class: on the same device if components `share` some, then on the same node, then in turn.
fn choose(class: Class, from: &Slots, to: &Slots, share: bool, sender_of: &mut [u32]) {
    let (senders, receivers) = (class.senders(), class.receivers());
    let mut loads = Loads { least: receivers / senders, extra: receivers % senders, of: vec![0; senders as usize] };
    let mut sending: Vec<Placed> = (0..senders).map(|index| (from.place(class.sender_slot(index)), index)).collect();
    let mut waiting: Vec<Placed> = (0..receivers).map(|index| (to.place(class.receiver_slot(index)), index)).collect();
    let mut give = |receiver: u32, sender: u32| {
        sender_of[class.receiver_slot(receiver) as usize] = class.sender_slot(sender);
    };
    if share {
        let device = |place: Place| place.1.map(|device| (place.0, device));
        serve(&mut sending, &mut waiting, &mut loads, device, &mut give);
    }
    serve(&mut sending, &mut waiting, &mut loads, |place| Some(place.0), &mut give);
    waiting.sort_unstable_by_key(|&(_, receiver)| receiver);
    let turns = loads.turns(0..senders, waiting.len());
    waiting.into_iter().zip(turns).for_each(|((_, receiver), sender)| give(receiver, sender));
}

/// Give receivers senders where both are, in turn; those without one keep waiting.
fn serve<K: Ord>(
    sending: &mut [Placed],
    waiting: &mut Vec<Placed>,
    loads: &mut Loads,
    at: impl Fn(Place) -> Option<K>,
    mut give: impl FnMut(u32, u32),
) {
    sending.sort_unstable_by_key(|&(place, index)| (at(place), index));
    waiting.sort_unstable_by_key(|&(place, index)| (at(place), index));
    let (mut left, mut start) = (Vec::new(), 0);
    for here in waiting.chunk_by(|one, other| at(one.0) == at(other.0)) {
        let known = at(here[0].0);
        start += sending[start..].partition_point(|other| at(other.0) < known);
        let count = sending[start..].partition_point(|other| known.is_some() && at(other.0) == known);
        let turns = loads.turns(sending[start..start + count].iter().map(|&(_, sender)| sender), here.len());
        here.iter().zip(&turns).for_each(|(&(_, receiver), &sender)| give(receiver, sender));
        left.extend_from_slice(&here[turns.len()..]);
    }
    *waiting = left;
}

/// How many receivers each sender of a class has: `least`, and `extra` of them one more.
struct Loads {
    least: u32,
    extra: u32,
    of: Vec<u32>,
}

impl Loads {
    /// Give a sender one more receiver, if it may have one.
    fn take(&mut self, sender: u32) -> bool {
        let load = &mut self.of[sender as usize];
        if *load > self.least || (*load == self.least && self.extra == 0) {
            return false;
        }
        self.extra -= u32::from(*load == self.least);
        *load += 1;
        true
    }

    /// Give these senders up to `count` receivers in turn, those with the fewest first; return the sender of each.
    fn turns(&mut self, senders: impl Iterator<Item = u32> + Clone, count: usize) -> Vec<u32> {
        let mut turns = Vec::with_capacity(count);
        let fewest = senders.clone().map(|sender| self.of[sender as usize]).min().unwrap_or(0);
        for load in fewest..=self.least {
            for sender in senders.clone() {
                if turns.len() < count && self.of[sender as usize] == load && self.take(sender) {
                    turns.push(sender);
                }
            }
        }
        turns
    }
}

fn no_sender(sender: Side<'_>, receiver: Side<'_>) -> Diagnostic {
    let (from, to) = (sender.tensor().size(), receiver.tensor().size());
    let (sent, received) = (sender.name, receiver.name);
    let article = if received.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    let message = format!(
        "{received} tensor size {to} does not divide {sent} tensor size {from}: no {sent} rank holds the weights of \
         {article} {received} slot"
    );
    let mut smaller: Vec<_> = (1..=from).filter(|&size| from.is_multiple_of(size)).collect();
    smaller.retain(|&size| receiver.slots.len().is_multiple_of(size));
    let smaller = smaller.split_off(smaller.len().saturating_sub(MOST_SIZES));
    let smaller = either(smaller.into_iter().map(u64::from));
    let larger =
        (from..=sender.slots.len()).find(|&size| size.is_multiple_of(to) && sender.slots.len().is_multiple_of(size));
    let or_larger = larger.map_or(String::new(), |size| format!(", or {sent} tensor size {size}"));
    let help = format!("use {received} tensor size {smaller}{or_larger}");
    Diagnostic::new(Code::NoWeightSender, message).help(help)
}

/// Sizes that a help line names.
const MOST_SIZES: usize = 4;
