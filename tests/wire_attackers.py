"""Strangers, relays and recorders for tests of the connections between processes, and checks of a process that is attacked."""

import contextlib
import http.client
import os
import pathlib
import random
import re
import select
import socket
import ssl
import struct
import threading
import time

HERE = "127.0.0.1"
MEGABYTE = 1 << 20
MOST_GROWTH = 8 * MEGABYTE
PATIENCE = 60  # seconds after which a connection or a descriptor that is still open is a fault


# ---- What strangers send ----

def ucx_message(number, body, length=None):
    return struct.pack("<BI", number, len(body) if length is None else length) + body


def attacks():
    """Byte strings by name. Each of those of UCX ended the version of a worker that listened with UCX 1.13.1."""
    noise = random.Random(1).randbytes(100_000)
    magic = bytes.fromhex("78563412bebafeca")
    request = ucx_message(0x20, struct.pack("<IBQ", 1, 0, 1) + bytes(16))  # for an address of family 0
    hello1 = struct.pack("<I", 30) + b"\x97\x00\xactandem pages\x01" + b"\x80" * 14
    return {
        "nothing": b"", "a byte": b"\x16", "long record": b"\x16\x03\x01\xff\xff", "record without bytes": b"\x16\x03\x01\x02\x00",
        "HTTP": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "Redis": b"*1\r\n$8\r\nFLUSHALL\r\n", "zeros": bytes(100_000),
        "noise": noise, **{f"noise of {size}": noise[:size] for size in (1, 7, 100, 5000)},
        "UCX": magic, "UCX, noise": magic + noise[:200], "UCX, connection request of family 0": magic + request,
        "UCX, connection request and empty message": magic + request + ucx_message(0x20, b""),
        "UCX, empty connection message": magic + ucx_message(0x20, b""),
        "UCX, active message of 2^32 - 1": magic + ucx_message(0, b"x" * 100, 2**32 - 1),
        "UCX, PUT to 0x1000": magic + ucx_message(0x21, struct.pack("<QQI", 0x1000, 8, 1)) + b"x" * 8,
        "UCX, PUT of 1 MiB": magic + ucx_message(0x21, struct.pack("<QQI", 0x10000000, MEGABYTE, 1)) + b"x" * MEGABYTE,
        "wire version 1, hello": hello1, "wire version 1, release": struct.pack("<I", 6) + b"\x92\x06\xa3one",
        "16 MiB": struct.pack("<I", 16 << 20) + b"x" * 1000, "frame of 16 MiB": struct.pack("<II", 16 << 20, 1) + b"x" * 1000,
        "record of 16 MiB": b"\x16\x03\x01" + struct.pack(">I", 16 << 20) + b"x" * 1000}


def damaged(hello, step):
    """A hello cut at every byte, and with one bit flipped in every byte; or in each `step`th."""
    for i in range(0, len(hello), step):
        yield f"hello cut at {i}", hello[:i]
        yield f"hello flipped at {i}", hello[:i] + bytes([hello[i] ^ 1 << i % 8]) + hello[i + 1:]


def received(connection):
    """The bytes that come until the other side ends the connection, or None if it does not."""
    answer = b""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    while poll.poll(1000 * PATIENCE):
        part = connection.recv(1 << 16)
        if not part:
            return answer
        answer += part
    return None


def send(port, data, site=HERE):
    """Sends bytes from an address, and returns what is received."""
    with socket.socket() as connection:
        connection.bind((site, 0))
        try:
            connection.connect((HERE, port))
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return received(connection)
        except OSError:
            return b""  # it was refused or cut


def still_open(connections):
    """The number of connections that the other side does not end in time."""
    waiting, end = {connection.fileno(): connection for connection in connections}, time.monotonic() + PATIENCE
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    while waiting and time.monotonic() < end:
        for descriptor, _ in poll.poll(100):
            try:
                is_over = not waiting[descriptor].recv(1 << 16)
            except OSError:
                is_over = True
            if is_over:
                poll.unregister(descriptor)
                del waiting[descriptor]
    return len(waiting)


def shake(port, version):
    """Connects with TLS and without the secret. Returns why this fails, or an empty string."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    try:
        with socket.create_connection((HERE, port)) as plain, context.wrap_socket(plain):
            return ""
    except OSError as error:
        return str(error)


# ---- What a process is and has ----

def listening_ports(process):
    """The TCP ports on which a process listens, whatever opened them."""
    sockets, ports = set(), set()
    for descriptor in os.listdir(f"/proc/{process}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{process}/fd/{descriptor}"))
            sockets |= {found[1]} if found else set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in sockets:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return ports


class Victim:
    """A process that attacks must not change. `answer` returns what it must always answer."""

    def __init__(self, process, answer):
        self.process, self.answer = process, answer
        self.expected = answer()
        self.num_descriptors = self._descriptors()
        self.settle()

    def settle(self):
        """Call when its memory has the size that its own work needs. Growth counts from here on."""
        self.resident = self._resident()

    def _descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def _resident(self):
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())[1]) << 10

    def faults(self):
        """The changes, once the connections of the attack have ended."""
        found = []
        try:
            if self.answer() != self.expected:
                found.append("another answer")
        except (OSError, http.client.HTTPException, ValueError) as error:
            found.append(f"no answer: {error!r}")
        if found:
            time.sleep(0.2)  # a process that has crashed takes a moment to end
        if self.process.poll() is not None:
            return [f"ended with {self.process.returncode}"]
        end = time.monotonic() + PATIENCE
        while self._descriptors() > self.num_descriptors and time.monotonic() < end:
            time.sleep(0.05)
        if self._descriptors() > self.num_descriptors:
            found.append(f"{self._descriptors()} descriptors instead of {self.num_descriptors}")
        growth = self._resident() - self.resident
        if growth >= MOST_GROWTH:
            found.append(f"its memory grew by {growth / MEGABYTE:.1f} MB")
        return found


# ---- Between two workers ----

class Listener:
    """Accepts connections at a port of its own, and runs a function for each of them."""

    def __init__(self, function):
        self.socket = socket.create_server((HERE, 0))
        self.port = self.socket.getsockname()[1]
        self.function = function
        self.connections = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection = self.socket.accept()[0]
                self.connections.append(connection)
                threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection):
        with connection, contextlib.suppress(OSError):
            self.function(connection)

    def close(self):
        for connection in [self.socket, *self.connections]:
            with contextlib.suppress(OSError):  # it may have ended
                connection.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def records(connection, num_encrypted=1):
    """Yields the records that arrive: those of the handshake, which ends with the last of `num_encrypted` records of TLS's type 23, then those of
    base/net/sealed_stream.h."""
    stream = connection.makefile("rb")
    while len(head := stream.read(5 if num_encrypted else 20)) == (5 if num_encrypted else 20):
        size = int.from_bytes(head[3:], "big") if num_encrypted else int.from_bytes(head[:4], "little")
        body = stream.read(size)
        yield head + body
        if len(body) < size:
            return
        if num_encrypted and head[0] == 23:
            num_encrypted -= 1


class Relay(Listener):
    """Passes the records of connections on to `port`, except the one that `fault` names: (what, way, number). Records that announce a change
    of ciphers are not counted, because TLS 1.3 ignores them."""

    FAULTS = ("flip", "drop", "repeat", "swap")
    NUM_ENCRYPTED = {"there": 1, "back": 2}  # a Finished; EncryptedExtensions and a Finished

    def __init__(self, port, fault=("", "", 0)):
        self.there, self.fault, self.num_faults = port, fault, 0
        self.recorded = {"there": [], "back": []}
        super().__init__(self._relay)

    def _relay(self, here):
        with socket.create_connection((HERE, self.there)) as there:
            back = threading.Thread(target=self._pass, args=(there, here, "back"))
            back.start()
            self._pass(here, there, "there")
            back.join()

    def _pass(self, source, sink, way):
        what, faulty_way, number = self.fault
        held, num_counted = b"", 0
        with contextlib.suppress(OSError):
            for record in records(source, self.NUM_ENCRYPTED[way]):
                self.recorded[way].append(record)
                sent, held = record + held, b""
                if record[:3] != b"\x14\x03\x03":
                    num_counted += 1
                    if what and way == faulty_way and num_counted == number + 1:
                        self.num_faults += 1
                        sent, held = self._changed(what, record)
                sink.sendall(sent)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    @staticmethod
    def _changed(what, record):
        """The bytes that are sent now, and those that are sent after the next record."""
        if what == "flip":
            place = random.Random(len(record)).randrange(5, len(record))
            return record[:place] + bytes([record[place] ^ 4]) + record[place + 1:], b""
        return {"drop": (b"", b""), "repeat": (2 * record, b""), "swap": (b"", record)}[what]
