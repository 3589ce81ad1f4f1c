/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What processes send and receive over TCP, by connection. The kernel tells of it since 6.3, where typed programs load.
 *
 * A connection is known by its cookie, which is never given twice. What is sent until something is received is a part:
 * a client of an object store sends one, and waits for the answer.
 */
#pragma once

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define MSG_PEEK 2
#define PART_BYTES (64 << 10)
#define SILENCE_NS 1000000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct connection_key);
	__type(value, struct connection);
} connections SEC(".maps");

/* by process: the connections for which there was no room, in one sum */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct connection);
} crowds SEC(".maps");

static __always_inline bool is_followed(__u32 process)
{
	return config.family_only ? is_ours(process) : bpf_map_lookup_elem(&attended, &process) != NULL;
}

/* Seldom: once for each connection, and for each call of one for which there is no room. */
static __noinline struct connection *meet(struct connection_key *key, unsigned long address)
{
	struct task_struct *task = current_task(true);
	struct sock *sk = (void *)address;
	__u32 zero = 0, process = key->process;
	struct connection *fresh, *known;
	struct scratch *scratch;

	scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!scratch)
		return NULL;
	fresh = (void *)&scratch->record;
	__builtin_memset(fresh, 0, sizeof(*fresh));
	fresh->process_start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
	fresh->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	fresh->local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	fresh->remote_port = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
	if (fresh->family == AF_INET)
		fresh->remote[0] = BPF_CORE_READ(sk, __sk_common.skc_daddr);
	else if (bpf_core_field_exists(struct sock_common, skc_v6_daddr))
		bpf_core_read(fresh->remote, sizeof(fresh->remote), &sk->__sk_common.skc_v6_daddr);
	bpf_map_update_elem(&connections, key, fresh, BPF_NOEXIST);
	known = bpf_map_lookup_elem(&connections, key);
	if (known)
		return known;
	known = bpf_map_lookup_elem(&crowds, &process);
	if (known)
		return known;
	fresh->family = 0;
	bpf_map_update_elem(&crowds, &process, fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&crowds, &process);
}

/*
 * Who answers has read all that he answers to, and has acknowledged it. What comes while some of that is on its way
 * answers something else: tickets of TLS 1.3, which come once a client has begun to send, or frames of HTTP/2.
 */
static __always_inline bool is_answer(struct sock *sk)
{
	struct tcp_sock *tcp = (void *)sk;

	return BPF_CORE_READ(tcp, snd_una) == BPF_CORE_READ(tcp, write_seq);
}

/* Two threads may use one socket: sums are exact then, and parts nearly. `turns`: a part of the `other` way ends. */
static __always_inline void count(struct way *way, struct way *other, __u64 bytes, bool turns)
{
	__u64 now_ns = bpf_ktime_get_ns(), run_bytes = other->bytes - other->run_from;

	if (run_bytes && turns) {
		other->run_from = other->bytes;
		if (run_bytes >= PART_BYTES) {
			other->parts++;
			other->parts_bytes += run_bytes;
			if (run_bytes > other->largest_part_bytes)
				other->largest_part_bytes = run_bytes;
		}
	}
	if (now_ns > way->last_ns + SILENCE_NS)
		way->began_ns = now_ns;
	way->last_ns = now_ns;
	__sync_fetch_and_add(&way->bytes, bytes);
	__sync_fetch_and_add(&way->calls, 1);
}

static __always_inline int on_socket(struct sock *sk, int bytes, const bool sent)
{
	__u64 caller = bpf_get_current_pid_tgid();
	struct connection_key key = {};
	struct connection *connection;
	struct counters *own;
	__u16 family;

	if (bytes <= 0)
		return 0;
	key.process = caller >> 32;
	if (!is_followed(key.process))
		return 0;
	family = sk->__sk_common.skc_family;
	if ((family != AF_INET && family != AF_INET6) || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	key.cookie = bpf_get_socket_cookie(sk);
	connection = bpf_map_lookup_elem(&connections, &key);
	if (!connection) {
		connection = meet(&key, (unsigned long)sk);
		if (!connection)
			return 0;
	}
	if (sent) {
		connection->tid = caller;
		count(&connection->sent, &connection->received, bytes, true);
	} else {
		count(&connection->received, &connection->sent, bytes, is_answer(sk));
	}
	own = own_counters();
	if (own)
		own->socket_calls++;
	return 0;
}

SEC("tp_btf/sock_send_length")
int sent_typed(__u64 *context)
{
	return on_socket((void *)context[0], context[1], true);
}

SEC("tp_btf/sock_recv_length")
int received_typed(__u64 *context)
{
	return context[2] & MSG_PEEK ? 0 : on_socket((void *)context[0], context[1], false);
}
