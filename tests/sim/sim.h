/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cluster in one process, from one seed: the master's core and its catalogue for real, nodes and a network that are
 * models. After every event the core is compared with a plain model of what it should hold (sim_model.c), and the
 * nodes' files with what the core has granted (master_sim.c). Everything is decided by the random numbers of the seed,
 * so a seed that fails fails again.
 *
 * The network: requests reach the master in any order, late, twice or never; what the master sends to a node stays in
 * order, and is late or lost (a notice is lost only if the protocol repeats it, or does not need it). A node may crash
 * at any event, and so may the master, with any number of its steps not yet in the catalogue.
 *
 * What is wrong ends the seed by longjmp() out of sim_fail(); memory is then left to the end of the process.
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/clock.h"
#include "master/catalogue.h"
#include "master/core.h"
#include "net/msg.h"

#define SIM_NODES 3u /* numbered from 1 */
#define SIM_BLOCK 16384ull
#define SIM_BLOCKS 3u /* of an object at most */
#define SIM_CAPACITY (SIM_BLOCK * 10)
#define SIM_PAGE 4096ull

#define SIM_PUT_DEADLINE (3 * NS_PER_SEC)
#define SIM_GET_DEADLINE (3 * NS_PER_SEC)
#define SIM_DEAD_AFTER (2 * NS_PER_SEC)
#define SIM_REPEAT (1 * NS_PER_SEC)
#define SIM_LEASE (1500 * NS_PER_MS)
#define SIM_RESUME (3 * NS_PER_SEC)
#define SIM_DELETED 4096u

/* ---- the plain model --------------------------------------------------------------------------------------- */

#define M_NAMES 64u
#define M_VERSIONS 256u
#define M_TICKETS 64u
#define M_GETS 64u
#define M_LOOSE 256u
#define M_SPENT 256u
#define M_FAILED 256u /* as many as the core */
#define SIM_FAILED_NS (5 * NS_PER_SEC)

struct m_name {
	uint64_t dir, id; /* dir 0: unused */
	bool is_dir;
	char name[16];
};

struct m_version {
	uint64_t id, ticket, size; /* id 0: unused */
	uint32_t blocks, home;
	bool orphan, pin, acked;
	bool held[SIM_NODES + 1];
	int64_t expires;
	struct {
		uint64_t alloc; /* memory replica; 0: none */
		bool ssd;
	} r[SIM_NODES + 1][SIM_BLOCKS];
	uint8_t said[SIM_NODES + 1][SIM_BLOCKS]; /* tiers, by an owner that is coming back */
};

struct m_ticket {
	uint64_t id, ns, sign; /* id 0: unused; ns: its root directory */
	uint32_t node;
	bool persist;
	uint64_t excl_dir; /* 0: none */
	char excl[16];
	struct {
		uint64_t alloc, bytes;
	} g[SIM_BLOCKS];
};

struct m_get {
	uint64_t id, put, alloc, bytes, start; /* id 0: unused */
	uint32_t node, block, source_node, source;
};

/*
 * What a name has stood for: the last few changes, each with its number, and the number of the last one that somebody
 * was told to be done. Whoever opens the name from then on must not get what it stood for only before.
 */
#define M_STATES 4096u /* slots, by hash */
#define M_CHANGES 16u

struct m_state {
	uint64_t dir; /* 0: unused */
	char name[16];
	uint64_t floor;
	struct {
		uint64_t no, id;
	} change[M_CHANGES];
	unsigned n_changes;
};

/* A change that is to be told: its name's floor rises when its answer arrives. */
#define M_TOLD 1024u

struct m_told {
	uint64_t req_id, no;
	struct m_state *state;
};

/* A source that failed; in the core's slots, for one takes the place of another there, too. */
struct m_failed {
	uint64_t put, until;
	uint32_t node, block, source;
};

struct m_loose {
	uint64_t alloc, bytes, put; /* alloc 0: unused */
	uint32_t node;
};

struct m_member {
	bool awaited, resuming; /* as in the core: an earlier run's, and it has begun to come back */
	uint64_t join_req;
	uint32_t page;
	bool live, ssd;
	uint64_t tag, capacity, zombie, sign;
};

/* A put of before the start. */
struct m_spent {
	uint64_t ticket, put;
	uint32_t node;
};

struct model {
	bool recovering;
	uint64_t until;
	struct m_spent spent[M_SPENT];
	unsigned n_spent;
	struct m_name names[M_NAMES];
	struct m_version versions[M_VERSIONS];
	struct m_ticket tickets[M_TICKETS];
	struct m_get gets[M_GETS];
	struct m_loose loose[M_LOOSE];
	struct m_failed failed[M_FAILED];
	struct m_member members[SIM_NODES + 1];
	uint64_t last_put; /* the highest put_id so far */
	struct m_state states[M_STATES];
	uint64_t n_changes;
	struct m_told told[M_TOLD];
	unsigned n_told;
};

struct sim;

/* Lets time pass, as core_tick() does. */
void model_tick(struct sim *s);
/* Follows a request and its answer: fails if the answer is not what the model says it must be. */
void model_follow(struct sim *s, const struct msg *req, const struct msg *ans);
/* Compares everything with the core. */
void model_compare(struct sim *s);
/* The master has restarted: objects are gone, directories are what the catalogue says. */
void model_restart(struct sim *s, struct core *loaded);

/* The answer of that request has come: what it has done is known. */
void model_told(struct sim *s, uint64_t req_id);
/* Whether an open of the name may give that version, or directory. */
bool model_may_see(struct sim *s, uint64_t dir, const char *name, uint64_t id);

struct m_version *model_version(struct sim *s, uint64_t id);
struct m_name *model_name(struct sim *s, uint64_t dir, const char *name);
/* Whether some node holds it. */
bool model_held(struct sim *s, uint64_t id);
uint64_t model_used(struct sim *s, uint32_t node);
uint64_t model_reserved(struct sim *s, uint32_t node);
/* What an allocation on a node is charged with; 0: it is not. */
uint64_t model_charge(struct sim *s, uint32_t node, uint64_t alloc);
/* Whether the ids are new; remembers them. */
void model_new_id(struct sim *s, uint64_t id, const char *what);

/* sim_restart.c */
bool model_is_lost(const struct m_version *v);
void model_check_loss(struct sim *s, const struct m_version *v);
void model_settle(struct sim *s); /* nobody is awaited any more: what has no replica is lost */
void model_resume_tick(struct sim *s);
void model_load(struct sim *s, const struct writes *w); /* versions and members as the catalogue has them */
bool model_joins_again(struct sim *s, const struct msg *req, const struct msg *ans); /* false: an ordinary join */
void model_inventory(struct sim *s, const struct msg *req, const struct msg *ans);
bool model_put_was_done(struct sim *s, const struct msg *req, const struct msg *ans); /* before the start */
void model_put_resume(struct sim *s, const struct msg *req, const struct msg *ans);

/* sim_model.c, for it */
void model_unname(struct sim *s, struct m_version *v);
void model_reap(struct m_version *v);
void model_member_gone(struct sim *s, uint32_t node);
void model_grants_gone(struct sim *s, uint32_t node); /* its puts, gets and loose allocations */
void model_add_loose(struct sim *s, uint32_t node, uint64_t alloc, uint64_t bytes, uint64_t put);
bool model_was_acked(const struct sim *s, uint64_t id);
int model_put_dir(struct sim *s, uint64_t dir); /* whether a put may be made there */
bool model_name_taken(struct sim *s, uint64_t dir, const char *name);
void model_add_ticket(struct sim *s, const struct msg *req, bool reserve);

/* ---- the nodes --------------------------------------------------------------------------------------------- */

#define N_FILES 96u
#define N_SSD 96u
#define N_OPS 12u
#define N_CACHE 256u
#define N_DROPS 128u

enum file_state {
	FILE_NONE,
	FILE_PRIVATE,  /* of a put; owner is the ticket */
	FILE_TARGET,   /* of a get; owner is the version */
	FILE_REPLICA,  /* owner is the version */
	FILE_EVICTING, /* asked about */
	FILE_TEMP,     /* to be unlinked and said to be freed */
};

struct n_file {
	enum file_state state;
	bool said;			       /* in the inventory */
	uint64_t alloc, bytes, owner, storage; /* storage: the ticket whose bytes are in it */
	uint32_t block;
};

struct n_ssd {
	uint64_t owner, storage; /* owner: ticket or version; 0: unused */
	uint32_t block;
	bool committed, private, said, lost; /* lost: a reader elsewhere has found it bad, and says so */
};

enum op_kind {
	OP_NONE,
	OP_JOIN,
	OP_PUT,
	OP_GET,
	OP_EVICT,
	OP_PERSIST,
	OP_RING,
	OP_ACK,
	OP_FREED,
	OP_NAME, /* one request about names */
	OP_BEAT,
	OP_HOLD,
	OP_LEAVE,
	OP_RESUME,
};

struct op {
	enum op_kind kind;
	unsigned step;
	struct msg *req; /* the request that waits for its answer; sent again from time to time; NULL: none */
	uint64_t sent_ns, sign_ns, began_ns;
	/* put */
	uint64_t ticket, size, grants[SIM_BLOCKS], allocs[SIM_BLOCKS];
	uint64_t dir;
	uint32_t flags;
	char name[16];
	bool spill[SIM_BLOCKS];
	bool resumed; /* the master that was started again has been told */
	/* others */
	uint64_t put_id, get_id, alloc;
	uint32_t block, node; /* node: the source of a get; flags then tell of what kind */
};

struct n_cached {
	uint64_t dir, id, lease; /* dir 0: unused; id 0: only what has ended is known */
	uint64_t ended;		 /* leases up to here are over */
	char name[16];
};

struct node {
	uint32_t number;
	bool ssd, joined;
	uint64_t tag, beat_ns;
	uint64_t lease_until; /* what it has leased is good until then */
	uint64_t ended_all;   /* leases up to here are over */
	uint64_t deaf_ns;     /* until then no revoke reaches it */
	struct n_file files[N_FILES];
	struct n_ssd ring[N_SSD];
	struct op ops[N_OPS];
	struct n_cached cache[N_CACHE];
	struct {
		uint64_t put_id, at_ns; /* put_id 0: unused */
	} drops[N_DROPS];
	uint64_t gone[64]; /* the last versions that were lost */
	unsigned n_gone;
};

void node_reset(struct sim *s, struct node *n); /* a crash, or an incarnation that is over */
/* Does something: begins an operation or goes on with one. */
void node_act(struct sim *s, struct node *n);
/* Does only what ends what has begun. Returns whether there is still something. */
bool node_settle(struct sim *s, struct node *n);
void node_receive(struct sim *s, struct node *n, const struct msg *m);
/* Every file is charged, and no file or ring entry is missing that the master counts on. */
void node_check(struct sim *s, struct node *n);
/* What it would give to who opens a name that it has leased is not older than what was told to be done. */
void node_check_leases(struct sim *s, struct node *n);
/* With nothing under way: leases are true. */
void node_check_quiet(struct sim *s, struct node *n);
bool node_has_block(const struct node *n, uint64_t storage, uint32_t block, bool mem);
/* Sends one request about names that is not part of the random ones. False: no free operation. */
bool node_name_op(struct sim *s, struct node *n, struct msg *m);

/* sim_node.c, for sim_restart.c */
struct op *node_op_begin(struct node *n, enum op_kind kind);
void node_op_end(struct op *op);
struct msg *node_request(struct sim *s, struct node *n, struct op *op, enum msg_type type, size_t n_items);
void node_post(struct sim *s, struct op *op);

/* sim_restart.c */
void node_awaited(struct sim *s, struct node *n, struct op *asked); /* it has heard so */
void node_resume_go_on(struct sim *s, struct node *n, struct op *op);
void node_resume_answer(struct sim *s, struct node *n, struct op *op, const struct msg *ans);
bool node_counts_on(const struct node *n, uint64_t put_id, uint32_t block); /* a copy that it has, as far as it knows */

/* ---- the network and the master's process ------------------------------------------------------------------- */

#define S_REQUESTS 128u
#define S_LINE 256u
#define S_PENDING 256u

/* A step of the core that the catalogue does not have yet. */
struct pending {
	struct writes writes;
	struct core_msg *msgs;
	size_t n_msgs;
	uint64_t hash; /* of the durable state after it */
};

struct sim_seen;

/* A request that the core does later; m is the core's. */
struct sim_held {
	struct msg *req;
	const struct msg *m;
};

#define S_HELD 128u

struct sim {
	uint64_t seed, events, event, rng;
	jmp_buf out;
	bool resumes; /* the master keeps objects, and owners come back */
	struct {
		uint64_t back, done_again, puts_again;
	} counted;
	uint64_t acked[SIM_DELETED];
	uint64_t deleted[SIM_DELETED]; /* versions that somebody was told are deleted, by their last digits */
	bool verbose, quiet;	       /* quiet: nothing fails any more */

	struct core *core;
	struct catalogue *cat;
	uint64_t now;
	int64_t real;
	uint64_t committed_hash;
	struct pending pending[S_PENDING];
	size_t n_pending;

	struct msg *requests[S_REQUESTS];
	size_t n_requests;
	struct msg *line[SIM_NODES + 1][S_LINE]; /* from the master, in order */
	size_t n_line[SIM_NODES + 1];

	struct sim_held held[S_HELD];
	size_t n_held;
	uint64_t owed; /* requests that have no answer */

	struct model model;
	struct node nodes[SIM_NODES + 1];
	uint64_t req_id;
	uint64_t acked_dirs[256];
	size_t n_acked_dirs;
	uint64_t ended_dirs[512];
	size_t n_ended_dirs;

	uint8_t *ids; /* a bit for each id that has been given out */
	size_t ids_len;
	struct {
		uint64_t expired[64]; /* allocations whose put or get has ended by its deadline */
		unsigned n;
	} late;
	struct {
		struct sim_seen *ids; /* requests that have been answered, see sim_seen() */
		size_t n, cap;
	} seen;
	uint64_t counts[MSG_TYPES][2]; /* by status 0 or not, for the summary */
	uint64_t crashes, restarts, waited;
};

uint64_t sim_rnd(struct sim *s, uint64_t n); /* below n */
static inline bool sim_chance(struct sim *s, unsigned percent)
{
	return sim_rnd(s, 100) < percent;
}
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));
void sim_log(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Gives a request to the network. */
void sim_send(struct sim *s, struct msg *m);
struct msg *sim_copy(const struct msg *m);
/* How a request that changes something was answered first. */
struct sim_seen {
	uint64_t req_id, tag; /* tag: of the incarnation, with which the master forgets it */
	int status;
};

/* The durable state of a core, without what may come late: the times of directories. */
uint64_t sim_state_hash(struct sim *s, struct core *c);

#endif
