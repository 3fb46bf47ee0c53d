"""A file whose reads and writes each take a while, many of them at a time: a device with latency and parallelism.

    python slow_file.py IMAGE MOUNT_POINT SECONDS

The mount point is an empty file, which shows the image until the program ends (FUSE: include/uapi/linux/fuse.h).
Throttles share a rate between requests; this delays each, as a network volume does.
"""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
import threading
import time

WORKERS = 64
LARGEST = 1 << 20
GETATTR, SETATTR, OPEN, READ, WRITE, RELEASE, FSYNC, FLUSH, INIT, DESTROY = (
    3,
    4,
    14,
    15,
    16,
    18,
    20,
    25,
    26,
    38,
)
#: FORGET, INTERRUPT, BATCH_FORGET
UNANSWERED = (2, 36, 42)
HEADER = struct.Struct("=IIQQIIIHH")
#: Requests of one file at a time, direct I/O among them.
ASYNC_READ, BIG_WRITES, ASYNC_DIRECT, MAX_PAGES = 1 << 0, 1 << 5, 1 << 15, 1 << 22


def attributes(file: int) -> bytes:
    found = os.fstat(file)
    times = (int(found.st_atime), int(found.st_mtime), int(found.st_ctime), 0, 0, 0)
    regular = 0o100600
    return struct.pack("=QII", 1, 0, 0) + struct.pack(
        "=QQQQQQIIIIIIIIII", 1, found.st_size, found.st_blocks, *times, regular, 1, 0, 0, 0, 4096, 0
    )


def answer(file: int, operation: int, body: bytes, delay_s: float) -> bytes:
    if operation == INIT:
        flags = ASYNC_READ | BIG_WRITES | ASYNC_DIRECT | MAX_PAGES
        pages = LARGEST >> 12
        return struct.pack(
            "=IIIIHHIIHHI", 7, 31, 0, flags, WORKERS, WORKERS, LARGEST, 1, pages, 0, 0
        ) + bytes(28)
    if operation in (GETATTR, SETATTR):
        return attributes(file)
    if operation == OPEN:
        return struct.pack("=QII", 0, 0, 0)
    if operation in (READ, WRITE):
        _, offset, size = struct.unpack_from("=QQI", body)
        time.sleep(delay_s)
        if operation == READ:
            return os.pread(file, size, offset)
        return struct.pack("=II", os.pwrite(file, body[40 : 40 + size], offset), 0)
    if operation in (RELEASE, FSYNC, FLUSH, DESTROY):
        return b""
    raise OSError(errno.ENOSYS, "unknown operation")


def serve(fuse: int, file: int, delay_s: float) -> None:
    while True:
        try:
            request = os.read(fuse, LARGEST + 4096)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return  # unmounted
            if error.errno == errno.EPERM:
                time.sleep(0.01)  # not mounted yet
            continue
        _, operation, unique, *_ = HEADER.unpack_from(request)
        if operation in UNANSWERED:
            continue
        failure, content = 0, b""
        try:
            content = answer(file, operation, request[HEADER.size :], delay_s)
        except OSError as error:
            failure = -(error.errno or errno.EIO)
        os.write(fuse, struct.pack("=IiQ", 16 + len(content), failure, unique) + content)


def main() -> None:
    image, mount_point, delay_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    file, fuse = os.open(image, os.O_RDWR), os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=100000,user_id=0,group_id=0,allow_other,max_read={LARGEST}"
    threads = [
        threading.Thread(target=serve, args=(fuse, file, delay_s), daemon=True) for _ in range(WORKERS)
    ]
    for thread in threads:
        thread.start()
    subprocess.run(
        ["mount", "-i", "-t", "fuse", "-o", options, "slow", mount_point], check=True, pass_fds=[fuse]
    )
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
