"""Every timeout and polling interval of the runtime, in seconds, each with its reason."""

# Defaults of public arguments.
JOIN = 60.0  # Cluster(timeout): machines of a job boot and run `ray start` within a minute
LAUNCH = 300.0  # launch(timeout): importing a training framework from a network drive takes minutes
LAUNCH_RANK = 2.0  # the same, for each rank on a machine: its processes start one after another, loaded ones slowly

# Connecting to a cluster.
LEAST_ANSWER = 0.5  # a head that answers takes milliseconds, and a tenth of this on a loaded machine
CONNECT = 5.0  # a live Ray head or raylet accepts a connection in milliseconds; Ray itself would try for minutes
ANSWER = 15.0  # a head or a rank answers in milliseconds; on a machine short of cores, a head once took more than 5 s
JOIN_POLL = 0.25  # listing the nodes takes 0.5 ms, and nodes take seconds to start
LAST_JOIN = 5.0  # nodes started together join within seconds; the node ranks must not depend on who was first

# Reserving.
GRANT_POLL = 0.005  # Ray grants or refuses a placement group within 3 ms
RETRY = 0.05  # Ray reports returned resources every 0.1 s, and by itself retries only after up to 1 s
SETTLE = 1.0  # resources of a killed process return after 0.1 s; ten times that on a busy machine
GRANT = 10.0  # a node that neither grants nor refuses: its raylet is overloaded, or dead but not yet declared so
REMOVE = 2.0  # Ray answers within 3 ms, also about a group that is to be removed; a dead node never does

# Launching, and reading the environment of Ray on a node.
ENVIRONMENT = 60.0  # a task that needs a new process on a busy node
INTERPRETER = 30.0  # importing Ray with the interpreter of a node group, from a slow network drive
INTERPRETER_TASK = 2 * INTERPRETER  # the same, plus starting the process that tries it
DRIVER = 60.0  # starting a CUDA driver without persistence mode takes seconds per card
TICK = 0.5  # how often a launch reports progress and notices that the cluster was closed

# Ranks that leave a group.
FINISH = LAUNCH  # restart(timeout): a batch of long answers takes minutes
FINISH_POLL = 0.02  # calls are seldom shorter
SENDING = 0.001  # sending a call takes 0.1 ms

# Watching.
WATCH = 0.5  # asking the head which ranks and nodes are dead takes milliseconds

# Programs that are pinned to a plan.
PINNED = 600.0  # pin(timeout): from the first group to the last rank, trainers load models of hundreds of GiB
FREE = 5.0  # the head hears within 0.1 s what is free on a node, on a busy machine after some seconds
LOOK = 1.0  # three tables of the head, in milliseconds each
SAMPLE = 0.1  # reading eight cards takes milliseconds; an allocator keeps what it has reserved for longer
JOBS = 3.0  # the head notices within a second that the driver of a job has ended
BEAT = 60.0  # how often a run tells that it lives; FORGOTTEN allows for many missed ones
FORGOTTEN = 3600.0  # a run on another machine: clocks differ by minutes, and a program joins the cluster within an hour
WAITING = 10.0  # other jobs end, and nodes give resources back, within seconds

# Ending.
ORPHAN = 15.0  # ranks outlive a driver and a head that both do not answer by this; Ray alone ends them after minutes
ORPHAN_POLL = 5.0  # a rank connects to its driver this often
KILL_POLL = 0.05  # a rank that is being killed still answers for a tenth of a second
LEAVE = 5.0  # a rank that is not in a call ends itself in milliseconds, on a machine that is not busy
KILL = 10.0  # Ray confirms a kill in 0.1 s; a node that went down meanwhile never does
EXIT = 5.0  # a rank whose threads or exit handlers hang is ended after this; Ray already counts it as dead
THREADS = 5.0  # threads that wait for ranks of a closed cluster notice within one tick
LAST_LINES = 0.5  # Ray forwards the last lines of the ranks to the driver late, and drops them at shutdown
RAYLETS = 5.0  # simulated nodes end within a second of losing their head


def launch_timeout(ranks_on_a_machine: int) -> float:
    """Return the default timeout of a launch with this many ranks on the machine that has the most.

    It is 316 s for 8 ranks, and 812 s for 256 ranks on one machine, as in a simulation; these took up to 251 s to start
    on two loaded cores.
    """
    return LAUNCH + LAUNCH_RANK * ranks_on_a_machine
