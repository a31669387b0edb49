"""A trainer that lends its accelerators: engines wake there when a training step is over, and others come and go.

    python examples/lend.py [timeline.svg]

It prints what happens, and draws who uses which accelerators when. The nodes are simulated on this machine; on a real
cluster, `Cluster()` takes the place of `Cluster.simulate`.
"""

import sys
import time
from pathlib import Path

import rankplan
from rankplan import Cluster, Worker, apply, transition

MODEL = "Qwen/Qwen3-8B"
ENGINE = {"engine": "vllm", "model": MODEL, "share": 0.8, "length": 8192, "sleep": "host"}
TRAINER = {"training": "megatron", "model": MODEL, "sleep": "host"}
COSTS = {"sync": [{"from": "actor", "to": "lent"}, {"from": "actor", "to": "rollout"}]}
SAMPLES = 9  # at least, for a training step; the first ones are generated while it runs


def plan_of(rollout, cluster):
    """Return a plan of a trainer, two engines that it lends its accelerators to, and the rollout."""
    components = {
        "actor": {"placement": "0-3:0-1", "parallel": {"tp": 2}, "memory": TRAINER},
        "lent": {"placement": "0-3:0-1", "parallel": {"tp": 2}, "memory": ENGINE},
        "rollout": {"placement": rollout, "parallel": {"tp": 2}, "memory": ENGINE},
    }
    return rankplan.plan({"cluster": {"num_nodes": 2, "component_placement": components}}, cluster)


def busy(seconds):
    """Be busy for so long; return from when to when."""
    began = time.time()
    time.sleep(seconds)
    return began, time.time()


class Trainer(Worker):
    def train(self):
        return busy(0.8)

    def sleep(self):
        return busy(0.15)

    def wake(self):
        return busy(0.15)


class Engine(Worker):
    def generate(self):
        return busy(0.25)

    def receive_weights(self):
        return busy(0.1)

    def sleep(self):
        return busy(0.1)

    def wake(self):
        return busy(0.1)


class Timeline:
    """Who has done what, on which accelerators, from when to when."""

    def __init__(self):
        self.start, self.bars = time.time(), []

    def add(self, what, rows, spans):
        """Add what these processes have done, each from when to when."""
        for row, (began, ended) in zip(rows, spans, strict=True):
            (node, first), (_, last) = row.devices
            self.bars.append((f"node {node}, {first}-{last}", what, began - self.start, ended - self.start))

    def svg(self):
        """Return the picture: a lane for every two accelerators, with a bar for all that was done there."""
        colors = {
            "trains": "#2563eb",
            "generates (lent)": "#f59e0b",
            "generates": "#16a34a",
            "loads": "#9ca3af",
            "gets weights": "#a855f7",
            "switches": "#64748b",
        }
        lanes = sorted({lane for lane, *_ in self.bars})
        end = max(ended for *_, ended in self.bars)
        left, width, height = 110, 760, 28
        scale = width / end
        bottom = 34 + height * len(lanes)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 20} {bottom + 44}" '
            'font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
        ]
        for index, (what, color) in enumerate(colors.items()):
            parts.append(f'<rect x="{left + 125 * index}" y="8" width="12" height="12" fill="{color}"/>')
            parts.append(f'<text x="{left + 125 * index + 16}" y="18">{what}</text>')
        for number, lane in enumerate(lanes):
            top = 32 + height * number
            parts.append(f'<text x="{left - 8}" y="{top + 17}" text-anchor="end">{lane}</text>')
            parts.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height - 4}" fill="#f1f5f9"/>')
            for _, what, began, ended in (bar for bar in self.bars if bar[0] == lane):
                x, wide = left + began * scale, max(1.0, (ended - began) * scale)
                title = f"<title>{what}, {began:.1f}-{ended:.1f} s</title>"
                shape = f'x="{x:.1f}" y="{top}" width="{wide:.1f}" height="{height - 4}" fill="{colors[what]}"'
                parts.append(f"<rect {shape}>{title}</rect>")
        apart = next(step for step in (1, 2, 5, 10, 20, 50, 100, 1000) if end / step <= 15)
        for second in range(0, int(end) + 1, apart):
            x = left + second * scale
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="black"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{second}</text>')
        parts.append(f'<text x="{left + width}" y="{bottom + 36}" text-anchor="end">seconds</text></svg>')
        return "\n".join(parts)


class Job:
    """The running groups, and what the trainer does in the steps of a transition."""

    def __init__(self, cluster, plan):
        self.groups = rankplan.launch(plan, cluster, {"actor": Trainer, "lent": Engine, "rollout": Engine})
        self.plan, self.timeline = plan, Timeline()
        self.groups["lent"].sleep().wait()

    def switch(self, step):
        """Let an instance sleep or wake: `step.ranks` are its processes, `step.do` is what they shall do."""
        spans = step.ranks.call(step.do).wait()
        self.timeline.add("switches", self.rows(step.component, step.instance), spans)

    def send_weights(self, step):
        """Send weights to a new engine, which gets no calls of its group yet."""
        spans = step.ranks.receive_weights().wait()
        self.timeline.add("gets weights", self.rows(step.component, step.instance), spans)

    def rows(self, component, instance):
        """Return the processes of an instance: all of the trainer, or one engine."""
        return [row for row in self.plan[component] if component == "actor" or row.rank == instance]

    def change(self, changed):
        """Carry out a transition, while the rollout generates; return how many samples that are."""
        began, rollout = time.time(), self.groups["rollout"]
        rows, meanwhile = rollout.placements, rollout.generate()
        self.plan = changed.after
        calls = {"sleep": self.switch, "wake": self.switch, "sync": self.send_weights}
        times = apply(changed, self.groups, calls=calls)
        print("  " + ", ".join(time.id for time in times))
        for step in times:
            if step.do == "load":
                span = began + step.start, began + step.start + step.seconds
                self.timeline.add("loads", self.rows(step.component, step.instance), [span])
        self.timeline.add("generates", rows, meanwhile.wait())
        return len(rows)

    def generate(self, *names):
        """Let these engines generate a sample each; return how many that are."""
        calls = [self.groups[name].generate() for name in names]
        for name, call in zip(names, calls, strict=True):
            what = "generates (lent)" if name == "lent" else "generates"
            self.timeline.add(what, self.groups[name].placements, call.wait())
        return sum(self.groups[name].world_size for name in names)

    def step(self, number, lend, take_back):
        """Train, generate, and lend what the trainer does not use then."""
        actor = self.groups["actor"]
        training = actor.train()
        samples = sum(self.generate("rollout") for _ in range(2))
        self.timeline.add("trains", actor.placements, training.wait())
        print(f"step {number}: {samples} of {SAMPLES} samples are there when the training is over")
        samples += self.change(lend)
        while samples < SAMPLES:
            samples += self.generate("rollout", "lent")
        print(f"  then there are {samples}")
        self.change(take_back)


def main():
    with Cluster.simulate("2x4:H100") as cluster:
        small, large = plan_of("4-5:0", cluster), plan_of("4-7:0-1", cluster)
        job = Job(cluster, small)
        job.step(1, *lending(small))
        print("an engine comes")
        job.change(transition(small, large, costs=COSTS))
        job.step(2, *lending(large))
        print("and goes")
        job.change(transition(large, small, costs=COSTS))
        if len(sys.argv) > 1:
            Path(sys.argv[1]).write_text(job.timeline.svg())


def lending(plan):
    """Return the transitions with which the trainer lends its accelerators, and takes them back."""
    return (
        transition(plan, plan, asleep=(["lent"], ["actor"])),
        transition(plan, plan, asleep=(["actor"], ["lent"])),
    )


if __name__ == "__main__":
    main()
