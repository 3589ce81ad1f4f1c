"""Maps and ring buffers of a loaded eBPF object, read in as few system calls as the kernel allows."""

from __future__ import annotations

import ctypes
import errno

from ckptprof_collectors.ebpf.libbpf_loader import BpfError, Libbpf

_PER_CPU = frozenset({5, 6, 10})  # linux/bpf.h: BPF_MAP_TYPE_PERCPU_HASH, PERCPU_ARRAY, LRU_PERCPU_HASH
_FIRST_CAPACITY = 128
_SHRINK_AFTER_LOOKUPS = 100  # in a row that use at most a quarter of the buffer: it is halved
_SampleFunction = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class BpfMap:
    """One map of a loaded object; usable until the object is closed, then every call raises BpfError(EBADF).

    `stride_bytes` is the distance of two values of `lookup_batch`: `value_size`, or for a per-CPU map that of all
    possible CPUs, each rounded up to 8.
    """

    def __init__(self, lib: Libbpf, name: str, pointer: int) -> None:
        self._lib = lib
        self.name = name
        call = lib.call
        self.fd: int = call.bpf_map__fd(pointer)
        self.key_size: int = call.bpf_map__key_size(pointer)
        self.value_size: int = call.bpf_map__value_size(pointer)
        self.max_entries: int = call.bpf_map__max_entries(pointer)
        self.stride_bytes = self.value_size
        if call.bpf_map__type(pointer) in _PER_CPU:
            # It reads /sys/devices/system/cpu/possible, as the kernel counts them for its own copy.
            cpus = lib.check(call.libbpf_num_possible_cpus(), "number of possible CPUs")
            self.stride_bytes = cpus * -(-self.value_size // 8) * 8
        self._capacity = self._small_lookups = 0
        self._keys = self._values = ctypes.create_string_buffer(0)
        self._value = ctypes.create_string_buffer(self.stride_bytes)
        self._count = ctypes.c_uint32()
        place_bytes = max(4, self.key_size)  # hash maps store a bucket's number there, others a key
        self._place, self._next_place = (ctypes.create_string_buffer(place_bytes) for _ in range(2))

    def _grow(self, used: int) -> None:
        capacity = max(2 * self._capacity, _FIRST_CAPACITY)
        # More entries than the map holds are read only if it changes during the walk.
        self._resize(min(capacity, self.max_entries) if self._capacity < self.max_entries else capacity, used)

    def _resize(self, capacity: int, used: int) -> None:
        old, self._capacity = (self._keys, self._values), capacity
        self._keys = ctypes.create_string_buffer(self._capacity * self.key_size)
        self._values = ctypes.create_string_buffer(self._capacity * self.stride_bytes)
        if used:
            ctypes.memmove(self._keys, old[0], used * self.key_size)
            ctypes.memmove(self._values, old[1], used * self.stride_bytes)

    def lookup_batch(self, *, delete: bool = False) -> tuple[int, memoryview, memoryview]:
        """Read (number of entries, their keys, their values), each end to end; valid until the next call.

        One system call if they fit into the size of the last call; `delete` deletes what it reads. Entries added or
        deleted meanwhile may be in it or not; one is whole unless its program is writing it. Raises BpfError.
        """
        if not self._capacity:
            self._grow(0)
        elif self._small_lookups >= _SHRINK_AFTER_LOOKUPS:
            self._resize(max(self._capacity // 2, _FIRST_CAPACITY), 0)
            self._small_lookups = 0
        name = "bpf_map_lookup_and_delete_batch" if delete else "bpf_map_lookup_batch"
        call, count, done = getattr(self._lib.call, name), self._count, 0
        place, next_place, started = self._place, self._next_place, False
        while True:
            if done == self._capacity:
                self._grow(done)
            count.value = self._capacity - done
            code = call(
                self.fd,
                ctypes.addressof(place) if started else None,
                ctypes.addressof(next_place),
                ctypes.addressof(self._keys) + done * self.key_size,
                ctypes.addressof(self._values) + done * self.stride_bytes,
                ctypes.byref(count),
                None,
            )
            if code == -errno.ENOSPC:  # the next bucket alone exceeds the remaining buffer; nothing was copied
                self._grow(done)
                continue
            if code not in (0, -errno.ENOENT):
                raise self._lib.make_error(code, f"map {self.name}: cannot be read")
            done += count.value
            if code:  # ENOENT: that was the last bucket
                break
            place, next_place, started = next_place, place, True
        is_small = 4 * done <= self._capacity and self._capacity > _FIRST_CAPACITY
        self._small_lookups = self._small_lookups + 1 if is_small else 0
        keys = memoryview(self._keys).cast("B")[: done * self.key_size]
        return done, keys, memoryview(self._values).cast("B")[: done * self.stride_bytes]

    def lookup(self, key: bytes) -> bytes | None:
        """Value of `key` (of all CPUs, end to end, for a per-CPU map), or None; raises BpfError."""
        code = self._lib.call.bpf_map_lookup_elem(self.fd, key, self._value)
        if code == -errno.ENOENT:
            return None
        self._lib.check(code, f"map {self.name}: cannot be read")
        return self._value.raw

    def lookup_percpu(self, key: bytes) -> list[bytes]:
        """Values of all possible CPUs; [] if the key is not there; raises BpfError."""
        every = self.lookup(key)
        if every is None:
            return []
        step = -(-self.value_size // 8) * 8
        return [every[start : start + self.value_size] for start in range(0, len(every), step)]

    def update(self, key: bytes, value: bytes) -> None:
        """Set the value of `key`; raises BpfError (E2BIG if a hash map is full)."""
        code = self._lib.call.bpf_map_update_elem(self.fd, key, value, 0)
        self._lib.check(code, f"map {self.name}: cannot be written")

    def delete(self, key: bytes) -> bool:
        """Remove `key`; return False if it was not there. Raises BpfError."""
        code = self._lib.call.bpf_map_delete_elem(self.fd, key)
        if code == -errno.ENOENT:
            return False
        self._lib.check(code, f"map {self.name}: cannot be written")
        return True


class RingReader:
    """The reader of a ring buffer map; one per map, closed before or after its object."""

    def __init__(self, lib: Libbpf, ring: BpfMap) -> None:
        """Map it into memory; raises BpfError."""
        self._lib = lib
        self._records: list[bytes] = []
        self._limit = 0
        try:
            self._function = _SampleFunction(self._append_record)
        except MemoryError:
            reason = f"map {ring.name}: a callback needs executable memory, which a sandbox forbids"
            raise BpfError(errno.ENOMEM, reason) from None
        function = ctypes.cast(self._function, ctypes.c_void_p)
        pointer = lib.call.ring_buffer__new(ring.fd, function, None, None)
        self._pointer: int | None = lib.check_pointer(pointer, f"ring buffer {ring.name}: cannot be opened")

    def _append_record(self, _context: int, data: int, size_bytes: int) -> int:
        self._records.append(ctypes.string_at(data, size_bytes))
        # libbpf counts the record as consumed before it checks the result, so that a stop here loses nothing.
        return 0 if len(self._records) < self._limit else -errno.ECANCELED

    def consume(self, limit: int) -> list[bytes]:
        """Consume at most `limit` (at least 1) records, oldest first; raises BpfError."""
        if self._pointer is None:
            raise BpfError(errno.EBADF, "the ring buffer is closed")
        self._limit = limit
        records = self._records
        code = self._lib.call.ring_buffer__consume(self._pointer)
        if code != -errno.ECANCELED:
            self._lib.check(code, "ring buffer: cannot be read")
        self._records = []  # not retained until the next call
        return records

    def fileno(self) -> int:
        """Descriptor that polls readable while records wait; raises BpfError if closed."""
        if self._pointer is None:
            raise BpfError(errno.EBADF, "the ring buffer is closed")
        descriptor: int = self._lib.call.ring_buffer__epoll_fd(self._pointer)
        return descriptor

    def close(self) -> None:
        """Unmap it; a second call does nothing."""
        if self._pointer is not None:
            self._lib.call.ring_buffer__free(self._pointer)
            self._pointer = None
