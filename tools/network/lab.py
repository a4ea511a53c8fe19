"""A network of its own on one machine: nodes, a switch, and cables of a given rate.

Every node is a network namespace. Cables (veth pairs) lead from each to a bridge in a namespace of
its own, the switch, and a token bucket (tc tbf) limits both ends of each. Where
the kernel has netem, it can delay what leaves a node.

    node 0 --tbf--tbf--+
    node 1 --tbf--tbf--+-- switch
    node 2 --tbf--tbf--+

All of it lives in a sandbox, PID, mount and network namespaces that end with the process that made
them, however that one ends: processes, cables and temporary files then go by themselves.
"""
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile

SPACES = "/run/netns"  # where iproute2 keeps its names; in the sandbox a file system of its own
SCRATCH = SPACES + "/scratch"  # files that end with the sandbox
LOCK = "/run/scape-netlab.lock"


class Skip(Exception):
    """This machine does not allow it."""


class Broken(Exception):
    """It should have worked."""


SANDBOX = ["unshare", "--fork", "--pid", "--kill-child=KILL", "--mount-proc", "--net"]


def check_allowed():
    if os.geteuid() != 0:
        raise Skip("network namespaces need root")
    for tool in ("ip", "tc", "unshare", "mpirun"):
        if shutil.which(tool) is None:
            raise Skip(f"`{tool}` is not installed (iproute2, util-linux, openmpi-bin)")
    probe = (f"mkdir -p {SPACES} && mount -t tmpfs tmpfs {SPACES} && ip netns add probe && "
             "ip -n probe link add probe0 type veth peer name probe1 && "
             "ip -n probe link add probe2 type bridge && ip netns exec probe tc qdisc add dev "
             "probe0 root tbf rate 1mbit burst 70000 latency 50ms")
    done = subprocess.run([*SANDBOX, "sh", "-c", probe], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Skip(f"namespaces, veth, bridges or tc are not allowed here: {done.stdout.strip()}")


def enter_sandbox():
    """Starts this program again, in a sandbox, and ends with its exit code; returns in there."""
    if os.environ.get("SCAPE_NETLAB_INSIDE") == str(os.getpid()) == "1":
        os.makedirs(SPACES, exist_ok=True)
        call("mount", "-t", "tmpfs", "tmpfs", SPACES)
        os.mkdir(SCRATCH)
        os.environ["TMPDIR"] = tempfile.tempdir = SCRATCH
        call("ip", "link", "set", "lo", "up")
        return
    check_allowed()
    # One at a time: two would time each other.
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("netlab: waiting for another one to end", file=sys.stderr)
        fcntl.flock(lock, fcntl.LOCK_EX)
    libc = ctypes.CDLL(None)
    end_with_parent = 1  # PR_SET_PDEATHSIG
    child = subprocess.Popen([*SANDBOX, sys.executable, *sys.argv],
                             env=dict(os.environ, SCAPE_NETLAB_INSIDE="1"),
                             preexec_fn=lambda: libc.prctl(end_with_parent, signal.SIGKILL))

    def end(number, frame):
        sys.exit(128 + number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    try:
        code = child.wait()
    finally:
        child.kill()  # and with it everything inside
        child.wait()
    sys.exit(code if code >= 0 else 128 - code)


def call(*command, check=True):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and done.returncode != 0:
        raise Broken(f"`{' '.join(command)}` failed: {done.stdout.strip()}")
    return done.stdout


class Network:
    """`nodes` nodes; set_rate() before use."""

    def __init__(self, nodes, delay_ms=0):
        self.names = [f"node{i}" for i in range(nodes)]
        self.addresses = [f"10.213.77.{i + 1}" for i in range(nodes)]
        for space in [*self.names, "switch"]:
            call("ip", "netns", "add", space)
        call("ip", "-n", "switch", "link", "add", "bridge", "type", "bridge")
        call("ip", "-n", "switch", "link", "set", "bridge", "up")
        for i, (name, address) in enumerate(zip(self.names, self.addresses)):
            call("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name",
                 f"port{i}", "netns", "switch")
            call("ip", "-n", "switch", "link", "set", f"port{i}", "master", "bridge", "up")
            call("ip", "-n", name, "address", "add", address + "/24", "dev", "eth0")
            call("ip", "-n", name, "link", "set", "lo", "up")
            call("ip", "-n", name, "link", "set", "eth0", "up")
            # What clusters use; BBR's probing makes rates of bursts vary by a fifth.
            call("ip", "netns", "exec", name, "sysctl", "-q",
                 "net.ipv4.tcp_congestion_control=cubic", check=False)
            if delay_ms > 0:
                try:
                    call("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", "root",
                         "handle", "1:", "netem", "delay", f"{delay_ms}ms", "limit", "1000000")
                except Broken as reason:
                    raise Skip(f"no delays without netem in the kernel: {reason}") from None
        self.delayed = delay_ms > 0
        self.agent = self._write_agent()

    def set_rate(self, mbit):
        """Of every cable, each way. The bucket holds what the rate carries in two milliseconds, as
        kernels let it out in ticks, and at least one large packet."""
        burst = max(70_000, int(mbit * 1e6 / 8 * 2e-3))
        below = ["parent", "1:1"] if self.delayed else ["root"]
        ends = [(name, "eth0", below) for name in self.names]
        ends += [("switch", f"port{i}", ["root"]) for i in range(len(self.names))]
        for space, device, place in ends:
            call("ip", "netns", "exec", space, "tc", "qdisc", "replace", "dev", device, *place,
                 "tbf", "rate", f"{mbit}mbit", "burst", str(burst), "latency", "50ms")

    def _write_agent(self):
        """What mpirun starts its daemons with, in place of ssh: `agent HOST COMMAND...`."""
        path = os.path.join(SCRATCH, "agent")
        with open(path, "w") as f:
            f.write("#!/bin/sh\nhost=$1\nshift\ncase $host in\n")
            for name, address in zip(self.names, self.addresses):
                f.write(f'  {address}) exec ip netns exec {name} unshare --uts sh -c '
                        f'"hostname {name}; exec $*" ;;\n')
            f.write("esac\nexit 1\n")
        os.chmod(path, 0o755)
        return path

    def mpirun(self, command, mca=()):
        """Runs `command` on one rank of every node. Returns (exit code, output)."""
        environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1",
                           OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        subnet = self.addresses[0] + "/24"
        done = subprocess.run(
            ["ip", "netns", "exec", self.names[0], "unshare", "--uts", "sh", "-c",
             f'hostname {self.names[0]}; exec "$@"', "sh", "mpirun", "-n", str(len(self.names)),
             "--bind-to", "none", "--host", ",".join(a + ":1" for a in self.addresses),
             "--mca", "plm_rsh_agent", self.agent, "--mca", "pml", "ob1",
             "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", subnet,
             "--mca", "oob_tcp_if_include", subnet, *mca,
             "-x", "OMP_NUM_THREADS", "-x", "OPENBLAS_NUM_THREADS", "-x", "TMPDIR", *command],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def sent_bytes(self, node=0):
        """What a node's cable has carried away from it, by the interface's own counter."""
        return int(call("ip", "netns", "exec", self.names[node], "cat",
                        "/sys/class/net/eth0/statistics/tx_bytes"))
