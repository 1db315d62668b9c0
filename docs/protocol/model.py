"""Explore every interleaving of the queue's protocol in small worlds, and judge the guarantees in each state.

The database is modelled as PostgreSQL at READ COMMITTED:

- A statement is one step. It sees what is committed when it starts, and its own transaction's writes.
- A statement that locks rows plans on its snapshot, then locks row by row. At each row it looks at the newest committed
  version again (EvalPlanQual); a row that no longer fits is dropped. With SKIP LOCKED a locked row is passed over, otherwise
  the actor waits, and holds what it has locked so far.
- With ``split=True`` planning and locking are two steps, so that others may commit between them (a slow statement).
  With ``rowwise=True`` every row lock of a claim is a step.
- Row locks and advisory locks are held until commit or abort. Commit publishes and unlocks in one step (PostgreSQL makes a
  transaction visible before it releases its locks).
- Waiting is explicit. A cycle of waiting actors is a deadlock: it is reported, then one of them is aborted and tries again.
- An UPDATE that touches only rows which the transaction has locked already is folded into its commit: no other transaction sees a difference.

Actors: claimers and finishers (one of each per worker), expirer, controller, promoter, enqueuer (late commits), raw deleter, repair.
A ``Design`` says which protocol they follow; ``World`` says which jobs exist and how much may happen. README.md explains the use.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import time
from collections import deque
from dataclasses import dataclass, field, replace

# Row: status, holds_target, lease_token, cancel flag (0, 1 pause, 2 cancel), said (what the last verb asked; not a column).
ST, HO, TK, CN, SAID = range(5)
NAMES = {"N": "(uncommitted)", "Q": "QUEUED", "W": "PENDING(target)", "T": "PENDING(time)", "R": "RUNNING", "P": "PAUSED",
         "E": "ERROR", "S": "SUCCESS", "C": "CANCELED", "D": "(deleted)"}
FITS = {"cancel": "QWTRPE", "pause": "QWTR", "resume": "PE", "later": "PE", "delete": "QWTPE"}
IDLE = ("", 0, 0, (), ())   # program counter, row locks, advisory locks, uncommitted writes, locals


@dataclass(frozen=True)
class Design:
    """The protocol's choices. The defaults are the recommended protocol."""

    look: str = "after"             # look in a statement after the lock | "same": one statement does both
    head: str = "all"               # QUEUED and parked, a holder first | "holder": QUEUED only | "queued": priority and id only | "none"
    park_needs_lock: bool = True
    park_elsewhere: bool = True     # the head is not among the candidates: park these, and only these (False: leave alone)
    park_rest_holder: bool = False  # "all of its other QUEUED rows" includes the QUEUED holder itself
    finish_lock: bool = True
    finish_guard: str = "token"     # | "id"
    finish_cancel: bool = True      # retry and hand-back obey a cancel flag that stands on the row
    finish_flag: bool = True        # an interrupted run ends as the row's flag says now (False: as the worker saw it)
    withdraw: bool = True           # resume of a RUNNING job takes the cancel flag back
    expire_cancel: bool = True      # so does expiry
    free: str = "status"            # free: nothing RUNNING, PAUSED, ERROR, no holder waiting for time | "holder": no holder at all
    claim_lock: str = "target"      # after the select: the target locks, then the rows again | "row": rows stay locked from the select on
    release: str = "skip"           # the parked row: "skip" locked | "wait" (FOR UPDATE) | "plain" (sub-select without a lock)
    control: str = "lock"           # target lock first, then the row | "row": row first, lock only to release
    settle: str = "always"          # cancel, delete, resume release, whatever the job was | "held": if it held | "forget": not resume
    handover: str = ""              # "" off | "best" of QUEUED and parked, else release | "parked": best parked
    touch_first: bool = False       # a transactional task has written its own job row before finish takes the target lock
    lock_order: str = "key"         # order of several advisory locks: by lock key | "name"


@dataclass(frozen=True)
class World:
    """The jobs and the budgets of one exploration."""

    name: str
    jobs: tuple                     # (target or -1, priority, status) with status Q, W, T or "N" (commits late, as QUEUED)
    batch: tuple = (2, 2)           # one claimer and one finisher per entry
    expires: int = 0
    expire_to: str = "Q"            # Q requeue, E hold, T requeue later; each letter is tried
    expire_all: bool = False        # the sweeper also takes all RUNNING jobs in one batch
    controls: int = 0
    ops: tuple = ("cancel", "pause", "resume")   # also "later" (resume to PENDING(time)), "delete"
    on: tuple = ()                  # jobs that control may touch; empty: all
    outcomes: int = 0               # how many runs may end otherwise than in SUCCESS
    outcome_kinds: str = ""         # E error, T retry, H hand-back
    aborts: int = 0
    abort_who: tuple = ("K",)       # kinds of actors whose transaction may be lost
    raw: int = 0
    keys: tuple = (0, 1, 2)         # advisory lock key of each target (equal: a hash collision)
    lanes: tuple = ()               # lane of each job; claimers serve lane 0 only
    split: bool = False
    rowwise: bool = False
    stray: bool = False             # a claim also locks rows that it saw QUEUED and that were parked since
    symmetric: bool = True
    batch_finish: bool = True
    limit: int = 600_000


@dataclass
class Result:
    """What one exploration found."""

    world: str
    states: int = 0
    edges: int = 0
    seconds: float = 0.0
    complete: bool = True
    found: dict = field(default_factory=dict)   # kind -> (text, trace)


class Model:
    """Steps of all actors over one world and one design."""

    def __init__(self, world: World, design: Design):
        self.w, self.d = world, design
        self.n = len(world.jobs)
        self.tg = [j[0] for j in world.jobs]
        self.pr = [j[1] for j in world.jobs]
        self.lane = world.lanes or (0,) * self.n
        self.targets = sorted({t for t in self.tg if t >= 0})
        self.of = {t: [j for j in range(self.n) if self.tg[j] == t] for t in self.targets}
        self.rank = sorted(range(self.n), key=lambda j: (-self.pr[j], j))
        workers = range(len(world.batch))
        self.actors = [(f"C{i}", self.claimer, i) for i in workers] + [(f"F{i}", self.finisher, i) for i in workers]
        self.nw = len(world.batch)
        if world.expires:
            self.actors.append(("X", self.expirer, 0))
        if world.controls:
            self.actors.append(("K", self.controller, 0))
        if "T" in world.outcome_kinds + world.expire_to or "later" in world.ops or any(j[2] == "T" for j in world.jobs):
            self.actors.append(("M", self.promoter, 0))
        if any(j[2] == "N" for j in world.jobs):
            self.actors.append(("N", self.enqueuer, 0))
        if world.raw:
            self.actors.append(("D", self.rawdeleter, 0))
        if world.raw or world.stray:
            self.actors.append(("G", self.repair, 0))
        self.symmetric = world.symmetric and self.nw == 2 and world.batch[0] == world.batch[1]
        self.closure_memo = {}
        self.blocked = {}

    def initial(self):
        """Return the first state: rows, actors, what each worker believes it runs, budgets."""
        db = tuple((j[2], 0, 0, 0, 0) for j in self.w.jobs)
        bud = (self.w.expires, self.w.controls, self.w.outcomes, self.w.aborts, self.w.raw, 0)
        return db, (IDLE,) * len(self.actors), ((),) * self.nw, bud

    # -- small helpers ---------------------------------------------------------------------------------------------------

    def goto(self, s, a, pc, lk, adv, wr, loc, label, viol=None, bud=None):
        """Move one actor."""
        db, acts, runs, b = s
        new = acts[:a] + ((pc, lk, adv, wr, loc),) + acts[a + 1:]
        return (f"{self.actors[a][0]}: {label}", (db, new, runs, bud or b), viol)

    def others(self, s, a):
        """Return the row locks and advisory locks that other actors hold."""
        rows = adv = 0
        for i, act in enumerate(s[1]):
            if i != a:
                rows |= act[1]
                adv |= act[2]
        return rows, adv

    def wait(self, s, a, row=None, key=None):
        """Note that an actor waits, and for whom."""
        self.blocked[a] = [i for i, act in enumerate(s[1]) if i != a and
                           ((row is not None and act[1] >> row & 1) or (key is not None and act[2] >> key & 1))]
        return []

    def view(self, s, wr):
        """Return the rows that a transaction sees now."""
        if not wr:
            return s[0]
        rows = list(s[0])
        for j, row in wr:
            rows[j] = row
        return tuple(rows)

    def commit(self, s, a, wr, label, gain=None, drop=None, bud=None):
        """Publish a transaction, unlock, and judge the move."""
        db, acts, runs, b = s
        viol = None
        rows = list(db)
        for j, row in wr:
            old = db[j]
            if old[ST] in "SCD" and row != old:
                viol = viol or ("I6", f"job {j} changed after its end: {old[ST]} to {row[ST]}")
            if row[ST] == "R" and old[TK] != row[TK] and old[SAID]:
                viol = viol or ("I7", f"job {j} runs although an operator was shown that it is stopped")
            rows[j] = row
        for t in self.targets:
            if sum(1 for j in self.of[t] if rows[j][HO] or rows[j][ST] == "R") > 1:
                viol = viol or ("I1", f"two holders of target {t} (the unique constraint would fire)")
        if gain or drop:
            w, who = (gain or drop)[0], list(runs)
            have = [r for r in who[w] if not drop or r not in drop[1]]
            who[w] = tuple(sorted(have + (list(gain[1]) if gain else [])))
            runs = tuple(who)
        new = acts[:a] + (IDLE,) + acts[a + 1:]
        return (f"{self.actors[a][0]}: {label}", (tuple(rows), new, runs, bud or b), viol)

    def is_free(self, v, t):
        """Return whether the target counts as free in the release rule."""
        for j in self.of[t]:
            st = v[j][ST]
            if st in "RPE" or (v[j][HO] and (self.d.free == "holder" or st in "TQ")):
                return False
        return True

    def blocked_by(self, v, j):
        """Return whether another job holds the target of job j (the claim's rule)."""
        return any(i != j and (v[i][HO] or v[i][ST] in "RPE") for i in self.of[self.tg[j]])

    def best(self, v, js, holder_first=True):
        """Return the jobs in line order."""
        return sorted(js, key=lambda j: ((not v[j][HO]) if holder_first else 0, -self.pr[j], j))

    def order_check(self, v, j, raw):
        """Judge the order of a take decided now."""
        if v[j][HO] or raw or self.tg[j] < 0:
            return None
        for i in self.of[self.tg[j]]:
            if i != j and v[i][ST] in "QW" and (v[i][HO] or (-self.pr[i], i) < (-self.pr[j], j)):
                return ("I4", f"job {j} is taken before job {i} ({NAMES[v[i][ST]]})")
        return None

    # -- claim -----------------------------------------------------------------------------------------------------------

    def claimer(self, s, a, w):
        """Claim: select, try the locks, look, park, take."""
        db = s[0]
        pc, lk, adv, wr, loc = s[1][a]
        if pc == "":
            plan = tuple(j for j in self.rank if db[j][ST] == "Q" and self.lane[j] == 0)
            if not plan:
                return []
            if self.w.split:
                return [self.goto(s, a, "sel", 0, 0, (), (plan, ()), f"select starts, sees {list(plan)}")]
            return self.claim_select(s, a, w, plan, ())
        if pc == "sel":
            return self.claim_select(s, a, w, *loc)
        if pc == "try":
            ts = tuple(sorted({self.tg[j] for j in loc} - {-1}))
            if self.d.look == "same":
                return [self.goto(s, a, "try2", lk, adv, wr, (loc, self.decide(s, loc, ts)), "lock+look starts (snapshot)")]
            got, adv = self.try_keys(s, a, ts)
            text = f"try advisory {list(ts)}: got {list(got)}"
            if self.d.claim_lock == "target":
                return [self.goto(s, a, "rows", lk, adv, wr, (loc, got), text)]
            return [self.goto(s, a, "look", lk, adv, wr, (loc, got), text)]
        if pc == "rows":
            rows, (cands, got) = self.others(s, a)[0], loc
            mine = tuple(j for j in cands if self.tg[j] < 0 or (self.tg[j] in got and db[j][ST] == "Q" and not rows >> j & 1))
            if not mine:
                return [self.goto(s, a, *IDLE, "no candidate is left: commit")]
            for j in mine:
                lk |= 1 << j
            return [self.goto(s, a, "look", lk, adv, wr, (mine, got), f"lock candidates {list(mine)}")]
        if pc == "try2":
            ts = tuple(sorted({self.tg[j] for j in loc[0]} - {-1}))
            got, adv = self.try_keys(s, a, ts)
            take, park, rel = ([j for j in x if self.tg[j] < 0 or self.tg[j] in got] for x in loc[1])
            return self.claim_decided(s, a, lk, adv, tuple(take), tuple(park), tuple(rel))
        if pc == "look":
            return self.claim_decided(s, a, lk, adv, *self.decide(s, *loc))
        if pc == "park":
            take, park, rel = loc
            rows = self.others(s, a)[0]
            wr = [(j, ("W",) + db[j][1:]) for j in park]
            for t in sorted({self.tg[j] for j in park}):
                for j in self.of[t]:
                    if db[j][ST] != "Q" or j in park or j in take or rows >> j & 1:
                        continue
                    taken = any(self.tg[i] == t for i in take)
                    if taken or self.blocked_by(db, j) or (self.d.park_rest_holder and db[j][HO]):
                        wr.append((j, ("W",) + db[j][1:]))
            for j in rel:
                if not rows >> j & 1 and db[j][ST] == "W":
                    wr.append((j, ("Q",) + db[j][1:]))
            for j, _ in wr:
                lk |= 1 << j
            text = f"park {[j for j, r in wr if r[ST] == 'W']}" + (f", release {list(rel)}" if rel else "")
            return [self.goto(s, a, "commit", lk, adv, tuple(sorted(wr)), take, text)]
        if pc == "commit":
            wr, gain = list(wr), []
            for j in loc:
                row = ("R", int(self.tg[j] >= 0), db[j][TK] + 1, 0, db[j][SAID])
                wr.append((j, row))
                gain.append((j, row[TK]))
            return [self.commit(s, a, wr, f"commit, runs {list(loc)}", gain=(w, gain))]
        raise AssertionError(pc)

    def try_keys(self, s, a, ts):
        """Take the advisory locks that are free; return those targets and the mask."""
        busy = self.others(s, a)[1]
        got = tuple(t for t in ts if not busy >> self.w.keys[t] & 1)
        mask = 0
        for t in got:
            mask |= 1 << self.w.keys[t]
        return got, mask

    def claim_select(self, s, a, w, plan, got):
        """SELECT ... FOR UPDATE SKIP LOCKED LIMIT n over the planned rows."""
        rows, db = self.others(s, a)[0], s[0]
        plan, got, lk = list(plan), list(got), s[1][a][1]
        while plan and len(got) < self.w.batch[w]:
            j = plan.pop(0)
            if rows >> j & 1:
                continue
            if db[j][ST] != "Q":
                if self.w.stray and db[j][ST] == "W":
                    lk |= 1 << j
                continue
            got.append(j)
            if self.w.rowwise:
                break
        for j in got:
            lk |= 1 << j
        if self.w.rowwise and plan and got and len(got) < self.w.batch[w]:
            return [self.goto(s, a, "sel", lk, 0, (), (tuple(plan), tuple(got)), f"select locks {got} so far")]
        if not got:
            return [self.goto(s, a, *IDLE, "select finds nothing")] if s[1][a][0] else []
        if all(self.tg[j] < 0 for j in got):
            return [self.goto(s, a, "commit", lk, 0, (), tuple(got), f"select locks {got}")]
        if self.d.claim_lock == "target":   # the select is a transaction of its own; only the jobs without a target stay locked
            lk = sum(1 << j for j in got if self.tg[j] < 0)
        return [self.goto(s, a, "try", lk, 0, (), tuple(got), f"select locks {got}")]

    def decide(self, s, cands, got):
        """Look with a snapshot of now: whom to take, whom to park, whom to release."""
        db, d = s[0], self.d
        take = [j for j in cands if self.tg[j] < 0]
        park, rel = [], []
        for t in sorted({self.tg[j] for j in cands} - {-1}):
            cs = [j for j in cands if self.tg[j] == t]
            if t not in got:
                if not d.park_needs_lock:
                    park += [j for j in cs if self.blocked_by(db, j)]
                continue
            queue = [j for j in self.of[t] if db[j][ST] == "Q" or (d.head == "all" and db[j][ST] == "W")]
            line = self.best(db, queue, d.head in ("holder", "all"))
            head = cs[0] if d.head == "none" else line[0] if line else None   # the line may be empty under look="same"
            for j in cs:
                if self.blocked_by(db, j):
                    park.append(j)
                elif j == head:
                    take.append(j)
            rest = [j for j in cs if j not in take and j not in park]
            if head in take:
                park += rest
            elif d.head == "all" and head is not None and db[head][ST] == "W" and not self.blocked_by(db, head):
                rel.append(head)
            elif d.park_elsewhere:
                park += rest
        return tuple(take), tuple(park), tuple(rel)

    def claim_decided(self, s, a, lk, adv, take, park, rel):
        """Go on after the look; judge the order of what was decided."""
        viol = next((v for j in take if (v := self.order_check(s[0], j, s[3][4] < self.w.raw))), None)
        text = f"look: take {list(take)}, park {list(park)}" + (f", release {list(rel)}" if rel else "")
        if park or rel:
            return [self.goto(s, a, "park", lk, adv, (), (take, park, rel), text, viol)]
        return [self.goto(s, a, "commit", lk, adv, (), take, text, viol)]

    # -- finish ----------------------------------------------------------------------------------------------------------

    def finisher(self, s, a, w):
        """Finish a batch of the worker's runs: advisory locks, guarded UPDATE, release, commit."""
        db, _, runs, bud = s
        pc, lk, adv, wr, loc = s[1][a]
        if pc == "":
            out = []
            mine = runs[w]
            picks = [(r,) for r in mine] + ([mine] if len(mine) > 1 and self.w.batch_finish else [])
            for pick in picks:
                kinds = []
                for j, tok in pick:
                    k = ["S"] + (list(self.w.outcome_kinds) if bud[2] else [])
                    if db[j][CN] and db[j][TK] == tok and db[j][ST] == "R":
                        k.append("I" + "-PC"[db[j][CN]])
                    kinds.append(k)
                for combo in itertools.product(*kinds):
                    cost = sum(1 for c in combo if c in "ETH")
                    if cost > bud[2]:
                        continue
                    items = tuple((j, tok, c) for (j, tok), c in zip(pick, combo))
                    need = ()
                    if self.d.finish_lock:
                        ts = {self.tg[j] for j, _, _ in items} - {-1}
                        keys = [self.w.keys[t] for t in sorted(ts)]
                        need = tuple(sorted(set(keys)) if self.d.lock_order == "key" else dict.fromkeys(keys))
                    b = bud[:2] + (bud[2] - cost,) + bud[3:]
                    text = "finish " + ", ".join(f"{j}#{tok}:{c}" for j, tok, c in items)
                    then = "pre" if self.d.touch_first else "adv" if need else "upd"
                    out.append(self.goto(s, a, then, 0, 0, (), (items, need, None), text, None, b))
            return out
        if pc == "pre":
            j, tok = loc[0][0][:2]
            if self.others(s, a)[0] >> j & 1:
                return self.wait(s, a, row=j)
            mine = db[j][ST] == "R" and db[j][TK] == tok
            return [self.goto(s, a, "adv" if loc[1] else "upd", lk | mine << j, adv, wr, loc, f"the task has written row {j}")]
        if pc == "adv":
            items, need, _ = loc
            if self.others(s, a)[1] >> need[0] & 1:
                return self.wait(s, a, key=need[0])
            rest = need[1:]
            return [self.goto(s, a, "adv" if rest else "upd", lk, adv | 1 << need[0], wr, (items, rest, None),
                              f"advisory lock {need[0]}")]
        if pc == "upd":
            items, need, plan = loc
            by_token = self.d.finish_guard == "token"
            fits = lambda r, tok: (r[ST] == "R" and r[TK] == tok) if by_token else r[ST] not in "ND"
            if plan is None:
                plan = tuple(i for i in items if fits(db[i[0]], i[1]))
                if self.w.split and plan:
                    return [self.goto(s, a, "upd", lk, adv, wr, (items, need, plan), "update starts (snapshot)")]
            rows = self.others(s, a)[0]
            done, viol = list(wr), None
            for k, (j, tok, c) in enumerate(plan):
                if rows >> j & 1:
                    if k:
                        return [self.goto(s, a, "upd", lk, adv, tuple(done), (items, need, plan[k:]),
                                          f"update waits for job {j}", viol)]
                    if loc[2] is None:
                        return [self.goto(s, a, "upd", lk, adv, wr, (items, need, plan), f"update waits for job {j}")]
                    return self.wait(s, a, row=j)
                row = db[j]
                if not fits(row, tok):
                    continue
                if row[ST] != "R" or row[TK] != tok:
                    viol = ("I2", f"the stale run {j}#{tok} changes the job ({NAMES[row[ST]]}, token {row[TK]})")
                lk |= 1 << j
                new = self.outcome(row, c)
                if c[0] == "I" and (new[ST] == "C") > (row[SAID] == 2) or (new[ST] == "P" and row[SAID] != 1):
                    viol = viol or ("I7", f"job {j} ends {NAMES[new[ST]]}, the last word was {'resume pause cancel'.split()[row[SAID]]}")
                done.append((j, new))
            text = f"update {[(j, r[ST]) for j, r in done]}" if done else "update: 0 rows, lease lost"
            freed = tuple(sorted({self.tg[j] for j, r in done if r[ST] in "SC" and self.tg[j] >= 0}))
            if freed:
                return [self.goto(s, a, "rel", lk, adv, tuple(sorted(done)), (items, freed, None), text, viol)]
            return [self.goto(s, a, "commit", lk, adv, tuple(sorted(done)), (items, (), None), text, viol)]
        if pc == "rel":
            return self.release(s, a, loc[1], loc[2], lambda ts, plan: (loc[0], ts, plan), "commit", hand=True)
        if pc == "commit":
            gain = [(j, r[TK]) for j, r in wr if r[ST] == "R"]
            return [self.commit(s, a, wr, "commit", drop=(w, [(j, t) for j, t, _ in loc[0]]), gain=(w, gain))]
        raise AssertionError(pc)

    def outcome(self, row, c):
        """Return the row after a run that ended so."""
        if (c in "TH" and row[CN] and self.d.finish_cancel) or (c[0] == "I" and self.d.finish_flag):
            c = "I" + "QPC"[row[CN]]
        st = {"S": "S", "E": "E", "T": "T", "H": "Q", "IQ": "Q", "IP": "P", "IC": "C"}[c]
        return (st, 0 if st in "SC" else row[HO], row[TK], 0, 0 if st in "SC" else row[SAID])

    def release(self, s, a, ts, plan, pack, then, hand=False):
        """Release the best parked job of each free target, one statement per target (or hand it over).

        A negated target in ``ts`` says that its hand-over found nothing, so that the second statement releases.
        """
        pc, lk, adv, wr, _ = s[1][a]
        d, v, rows = self.d, self.view(s, wr), self.others(s, a)[0]
        hand = hand and d.handover and ts[0] >= 0
        t = ts[0] if ts[0] >= 0 else ~ts[0]
        viol, text, started = None, f"target {t}: nothing to release", plan is not None
        if not started:
            plan = ()
            if self.is_free(v, t):
                among = "QW" if hand and d.handover == "best" else "W"
                plan = tuple(self.best(v, [j for j in self.of[t] if v[j][ST] in among]))
            if hand and plan:
                plan = plan[:1]
                viol = self.order_check(v, plan[0], s[3][4] < self.w.raw)
            elif d.release == "plain":
                plan = plan[:1]
            if self.w.split and plan:
                text = f"{'hand-over' if hand else 'release'} of target {t} starts, sees {list(plan)}"
                return [self.goto(s, a, pc, lk, adv, wr, pack(ts, plan), text, viol)]
        for k, j in enumerate(plan):
            if rows >> j & 1:
                if d.release == "skip" or hand:
                    continue
                if not started or k:
                    return [self.goto(s, a, pc, lk, adv, wr, pack(ts, plan[k:]), f"release of target {t} waits for job {j}")]
                return self.wait(s, a, row=j)
            row = v[j]
            if row[ST] != "W" and not (hand and row[ST] == "Q" and d.handover == "best"):
                continue
            lk |= 1 << j
            new = ("R", 1, row[TK] + 1, 0, row[SAID]) if hand else ("Q",) + row[1:]
            wr = tuple(sorted([x for x in wr if x[0] != j] + [(j, new)]))
            text = f"hand over job {j}" if hand else f"release job {j}"
            return [self.goto(s, a, pc if ts[1:] else then, lk, adv, wr, pack(ts[1:], None), text, viol)]
        if hand and plan:
            return [self.goto(s, a, pc, lk, adv, wr, pack((~t,) + ts[1:], None), f"hand-over of job {plan[0]}: locked, 0 rows")]
        bud = s[3]
        if any(rows >> j & 1 for j in plan):    # left to the repair
            text, bud = f"release of target {t}: {list(plan)} locked, left to the repair", bud[:5] + (1,)
        return [self.goto(s, a, pc if ts[1:] else then, lk, adv, wr, pack(ts[1:], None), text, viol, bud)]

    # -- expire, control, promote, enqueue, raw delete, repair -----------------------------------------------------------

    def expirer(self, s, a, _):
        """Expire RUNNING jobs whose lease is taken to have run out."""
        db, _, _, bud = s
        pc, lk, adv, wr, loc = s[1][a]
        if pc == "":
            if not bud[0]:
                return []
            run = [j for j in range(self.n) if db[j][ST] == "R"]
            picks = [(j,) for j in run] + ([tuple(run)] if self.w.expire_all and len(run) > 1 else [])
            out = []
            for pick in picks:
                for to in self.w.expire_to:
                    b = (bud[0] - 1,) + bud[1:]
                    if self.w.split:
                        out.append(self.goto(s, a, "sel", 0, 0, (), (pick, to), f"expire {list(pick)} starts", None, b))
                    else:
                        out += self.expire_select(s, a, pick, to, b)
            return out
        if pc == "sel":
            return self.expire_select(s, a, *loc, bud)
        if pc == "try":
            got, adv = self.try_keys(s, a, loc[1])
            lost = [j for j, r in wr if r[ST] == "C" and self.tg[j] >= 0 and self.tg[j] not in got]
            wr = tuple(x for x in wr if x[0] not in lost)
            text = f"try advisory {list(loc[1])}: got {list(got)}"
            return [self.goto(s, a, "rel" if got else "commit", lk, adv, wr, (loc[0], got, None), text)]
        if pc == "rel":
            return self.release(s, a, loc[1], loc[2], lambda ts, plan: (loc[0], ts, plan), "commit")
        return [self.commit(s, a, wr, "commit")]

    def expire_select(self, s, a, pick, to, bud):
        """SELECT ... FOR UPDATE SKIP LOCKED of the expired rows, and the UPDATE of them."""
        rows, db, lk, wr = self.others(s, a)[0], s[0], 0, []
        for j in pick:
            row = db[j]
            if rows >> j & 1 or row[ST] != "R":
                continue
            lk |= 1 << j
            st = to
            if row[CN] and self.d.expire_cancel:
                st = "-PC"[row[CN]]
            wr.append((j, (st, 0 if st == "C" else row[HO], row[TK], row[CN] if st == "Q" else 0, row[SAID])))
        if not wr:
            return [self.goto(s, a, *IDLE, "expire finds nothing", None, bud)]
        ts = tuple(sorted({self.tg[j] for j, r in wr if r[ST] == "C" and self.tg[j] >= 0}))
        return [self.goto(s, a, "try" if ts else "commit", lk, 0, tuple(wr), ((), ts, None),
                          f"expire {[(j, r[ST]) for j, r in wr]}", None, bud)]

    def controller(self, s, a, _):
        """Cancel, pause, resume or delete one job."""
        db, _, _, bud = s
        pc, lk, adv, wr, loc = s[1][a]
        if pc == "":
            if not bud[1]:
                return []
            out = []
            for op in self.w.ops:
                for j in self.w.on or range(self.n):
                    if db[j][ST] in FITS[op] or (
                            op == "resume" and self.d.withdraw and db[j][ST] == "R" and db[j][CN]):
                        b = bud[:1] + (bud[1] - 1,) + bud[2:]
                        first = "adv" if self.d.control == "lock" and self.tg[j] >= 0 else "row"
                        out.append(self.goto(s, a, first, 0, 0, (), (op, j, (), None), f"{op} job {j}", None, b))
            return out
        op, j, ts, plan = loc
        if pc == "adv":
            key = self.w.keys[self.tg[j]]
            if self.others(s, a)[1] >> key & 1:
                return self.wait(s, a, key=key)
            then = "row" if self.d.control == "lock" else "rel"
            return [self.goto(s, a, then, lk, adv | 1 << key, wr, loc, f"advisory lock {key}")]
        if pc == "row":
            if self.others(s, a)[0] >> j & 1:
                return self.wait(s, a, row=j)
            row, lk = db[j], lk | 1 << j
            new, st = None, row[ST]
            if op in ("cancel", "pause") and st == "R":
                new = row[:CN] + ((2, 2) if op == "cancel" else (max(row[CN], 1), max(row[SAID], 1)))
            elif op == "resume" and st == "R" and row[CN] and self.d.withdraw:
                new = row[:CN] + (0, 0)
            elif op == "cancel" and st in "QWTPE":
                new = ("C", 0, row[TK], 0, 0)
            elif op == "pause" and st in "QWT":
                new = ("P",) + row[1:SAID] + (1,)
            elif op in ("resume", "later") and st in "PE":
                new = ("Q" if op == "resume" else "T", row[HO], row[TK], 0, 0)
            elif op == "delete" and st in "QWTPE":
                new = ("D", 0, row[TK], 0, 0)
            if new is None:
                return [self.goto(s, a, *IDLE, f"{op} of job {j} does not fit any more ({NAMES[st]})")]
            wr = ((j, new),)
            need = self.tg[j] >= 0 and new[ST] in "CDQT" and st != "R"
            if self.d.settle != "always":
                if op in ("resume", "later"):
                    freed = not row[HO] and self.d.settle == "held"
                else:
                    freed = row[HO] or st in "PE" or self.d.settle == "forget"
                need = need and freed
            then = "commit" if not need else "rel" if self.d.control == "lock" else "adv"
            text = f"job {j}: {NAMES[st]} to " + (NAMES[new[ST]] if new[ST] != "R" else f"RUNNING, flag {new[CN]}")
            return [self.goto(s, a, then, lk, adv, wr, (op, j, (self.tg[j],), None), text)]
        if pc == "rel":
            return self.release(s, a, ts, plan, lambda rest, p: (op, j, rest, p), "commit")
        return [self.commit(s, a, wr, f"commit {op} of job {j}")]

    def promoter(self, s, a, _):
        """Move PENDING(time) to QUEUED, SKIP LOCKED."""
        db = s[0]
        pc, lk, adv, wr, loc = s[1][a]
        if pc == "":
            rows = self.others(s, a)[0]
            return [self.goto(s, a, "commit", 1 << j, 0, ((j, ("Q",) + db[j][1:]),), (), f"promote locks {j}")
                    for j in range(self.n) if db[j][ST] == "T" and not rows >> j & 1]
        return [self.commit(s, a, wr, "commit")]

    def enqueuer(self, s, a, _):
        """Commit a late enqueue (its insert was invisible until now and took no lock)."""
        return [self.commit(s, a, ((j, ("Q", 0, 0, 0, 0)),), f"late enqueue of job {j} commits")
                for j in range(self.n) if s[0][j][ST] == "N"]

    def rawdeleter(self, s, a, _):
        """DELETE by raw SQL: no advisory lock, no release."""
        db, _, _, bud = s
        pc, lk, adv, wr, loc = s[1][a]
        if pc == "":
            if not bud[4]:
                return []
            b = bud[:4] + (bud[4] - 1, bud[5])
            return [self.goto(s, a, "row", 0, 0, (), (j,), f"raw delete of job {j}", None, b)
                    for j in range(self.n) if db[j][ST] in "QWTRPE"]
        if pc == "row":
            j = loc[0]
            if self.others(s, a)[0] >> j & 1:
                return self.wait(s, a, row=j)
            if db[j][ST] in "SC":
                return [self.goto(s, a, *IDLE, "already ended")]
            return [self.goto(s, a, "commit", 1 << j, 0, ((j, ("D", 0, db[j][TK], 0, 0)),), loc, f"row {j} deleted")]
        return [self.commit(s, a, wr, "commit raw delete", bud=bud[:5] + (1,))]

    def repair(self, s, a, _):
        """release_parked_targets: find, try the lock, look again, release."""
        pc, lk, adv, wr, loc = s[1][a]
        if pc == "":
            if not s[3][5]:
                return []
            return [self.goto(s, a, "try", 0, 0, (), ((t,), None), f"repair finds target {t}") for t in self.targets
                    if self.is_free(s[0], t) and any(s[0][j][ST] == "W" for j in self.of[t])
                    and not any(s[0][j][ST] == "Q" for j in self.of[t])]
        if pc == "try":
            got, adv = self.try_keys(s, a, loc[0])
            if not got:
                return [self.goto(s, a, *IDLE, "repair: lock not free")]
            return [self.goto(s, a, "rel", lk, adv, wr, loc, "repair has the lock")]
        if pc == "rel":
            return self.release(s, a, loc[0], loc[1], lambda rest, p: (rest, p), "commit")
        return [self.commit(s, a, wr, "commit repair")]

    # -- the whole -------------------------------------------------------------------------------------------------------

    def successors(self, s):
        """Return all steps from a state, and the deadlock in it if there is one."""
        out, self.blocked = [], {}
        for a, (name, step, arg) in enumerate(self.actors):
            out += step(s, a, arg)
            pc, lk, adv, wr, _ = s[1][a]
            if s[3][3] and pc and (lk or adv) and name[0] in self.w.abort_who:
                b = s[3][:3] + (s[3][3] - 1, s[3][4], s[3][5] or int(name == "D"))
                out.append(self.goto(s, a, *IDLE, "connection lost: rollback", None, b))
        dead = None
        if len(self.blocked) > 1:
            dead = self.cycle()
            if dead:
                for a in dead:
                    out.append(self.goto(s, a, *IDLE, "deadlock victim: rollback"))
                dead = ("I5", "deadlock of " + ", ".join(f"{self.actors[a][0]} at {s[1][a][0]}" for a in sorted(dead)))
        return out, dead

    def cycle(self):
        """Return the actors of a cycle of waits, or None."""
        for a in self.blocked:
            seen, todo = set(), list(self.blocked[a])
            while todo:
                x = todo.pop()
                if x == a:
                    return [i for i in self.blocked if i in seen or i == a]
                if x not in seen:
                    seen.add(x)
                    todo += self.blocked.get(x, [])
        return None

    def stuck(self, s):
        """With no transaction open: let one worker poll alone to the end, and return what never runs."""
        key = (s[0], s[3][5])
        if key in self.closure_memo:
            return self.closure_memo[key]
        db, acts, runs, bud = s
        bud = (0, 0, 0, 0, 0, bud[5])
        cur = (db, acts, runs, bud)
        w = self.w
        self.w = replace(w, split=False, rowwise=False, symmetric=False)
        for _ in range(6 * self.n + 6):
            before = cur[0]
            for a, (name, step, arg) in enumerate(self.actors):
                if name[0] in "FMG" or name == "C0":
                    cur = self.alone(cur, a, step, arg)
            if cur[0] == before:
                break
        self.w = w
        left = []
        for j in range(self.n):
            t = self.tg[j]
            held = t >= 0 and any(cur[0][i][ST] in "PE" for i in self.of[t])
            if cur[0][j][ST] in "QWTR" and not held and self.lane[j] == 0:
                behind = t >= 0 and not cur[0][j][HO] and any(
                    self.lane[i] and cur[0][i][ST] in "QWTR" and (-self.pr[i], i) < (-self.pr[j], j) for i in self.of[t])
                if not behind:
                    left.append(f"job {j} ({NAMES[cur[0][j][ST]]})")
        found = ("I3", "free, but never runs: " + ", ".join(left)) if left else None
        self.closure_memo[key] = found
        return found

    def alone(self, s, a, step, arg):
        """Run one actor's transactions, alone, until it has nothing to do or changes nothing."""
        for _ in range(40):
            start = s
            while True:
                nxt = step(s, a, arg)
                if not nxt:
                    break
                s = nxt[0][1]
                if s[1][a][0] == "":
                    break
            if s[:3] == start[:3]:
                return s
        return s

    def canon(self, s):
        """Order two equal workers, so that a state and its mirror image count once."""
        if not self.symmetric:
            return s
        db, acts, runs, bud = s
        one, two = (hash((acts[0], acts[2], runs[0])), hash((acts[1], acts[3], runs[1])))
        if one <= two:
            return s
        return db, (acts[1], acts[0], acts[3], acts[2]) + acts[4:], (runs[1], runs[0]), bud


def explore(world: World, design: Design, stop_at=(), seconds=600.0) -> Result:
    """Breadth-first search; keep the shortest trace of each kind of violation."""
    m, begun = Model(world, design), time.monotonic()
    res = Result(world.name)
    first = m.canon(m.initial())
    parent = {first: None}
    todo = deque([first])

    def note(kind, text, s, label=None):
        if kind in res.found:
            return
        trace = [label] if label else []
        while parent[s] is not None:
            s, step = parent[s]
            trace.append(step)
        res.found[kind] = (text, trace[::-1])

    while todo:
        s = todo.popleft()
        succ, dead = m.successors(s)
        if dead:
            note(*dead, s)
        if not any(act[0] for act in s[1]):
            bad = m.stuck(s)
            if bad:
                note(*bad, s)
                if bad[0] in stop_at:
                    break
                continue
        for label, new, viol in succ:
            res.edges += 1
            if viol:
                note(*viol, s, label)
                continue
            new = m.canon(new)
            if new not in parent:
                parent[new] = (s, label)
                todo.append(new)
        if any(k in res.found for k in stop_at):
            res.complete = False
            break
        if len(parent) > world.limit or time.monotonic() - begun > seconds:
            res.complete = False
            break
    res.states, res.seconds = len(parent), time.monotonic() - begun
    return res


# -- what to explore -----------------------------------------------------------------------------------------------------

THREE = ((0, 0, "Q"), (0, 1, "Q"), (0, 0, "Q"))
LATE = ((0, 0, "Q"), (0, 1, "N"), (0, 0, "Q"))
WORSE = ((0, 0, "Q"), (0, 0, "Q"), (0, 0, "N"))
FREE = THREE + ((-1, 0, "Q"),)
TWO = ((0, 0, "Q"), (0, 1, "Q"), (1, 0, "Q"), (1, 1, "Q"))
ALL = ("C", "F", "X", "K", "G")
FINE = {"split": True, "rowwise": True, "stray": True}

SMALL = (
    World("claim and finish", FREE),
    World("a better job commits late", LATE, **FINE),
    World("a job commits late", WORSE, **FINE),
    World("expiry, requeue", THREE, expires=1),
    World("expiry, jobs commit late", ((0, 0, "Q"), (0, 1, "N"), (0, 1, "N")), expires=1),
    World("one control operation", THREE, controls=1),
    World("one control operation, its connection may be lost", THREE, controls=1, aborts=1),
    World("control, retry, hand-back, error", LATE, controls=1, outcomes=1, outcome_kinds="ETH"),
    World("two control operations", THREE, controls=2),
    World("two control operations, hand-back", ((0, 0, "Q"), (0, 0, "Q")), controls=2, outcomes=1, outcome_kinds="H"),
    World("control and expiry", THREE, controls=1, expires=1),
    World("two lanes, no worker serves the second", ((0, 0, "Q"), (0, 0, "Q"), (0, 0, "Q"), (-1, 0, "Q")), lanes=(1, 0, 0, 0)),
    World("a holder, and a better job in a lane no worker serves", ((0, 0, "Q"), (0, 1, "N")), lanes=(0, 1), expires=1),
    World("two targets share a lock key", ((0, 0, "Q"), (1, 0, "Q"), (2, 0, "Q")), expires=1, keys=(1, 0, 1)),
)
LARGE = (
    World("claim and finish, slow statements", FREE, **FINE),
    World("late, expiry, slow statements", LATE, expires=1, **FINE),
    World("two targets, batches of 2 and 3, slow claims", TWO + ((-1, 0, "Q"),), batch=(2, 3), rowwise=True),
    World("two targets, sweeper in batches", TWO, expires=1, expire_all=True),
    World("two targets, control, slow statements", TWO, controls=1, split=True),
    World("two targets, control, expiry", ((0, 0, "Q"), (1, 0, "Q"), (0, 0, "Q")), controls=1, expires=1, expire_to="QE"),
    World("two control operations and expiry", THREE, controls=2, expires=1),
    World("two jobs, two control operations, slow statements", ((0, 0, "Q"), (0, 0, "Q")), controls=2, expires=1, expire_to="QE", **FINE),
    World("two control operations, expiry to both", THREE, controls=2, expires=1, expire_to="QE"),
    World("two control operations, late, time", ((0, 0, "T"), (0, 1, "N"), (0, 0, "Q")), controls=2),
    World("three control operations with delete", THREE, controls=3, ops=("cancel", "pause", "resume", "delete"), on=(0, 1)),
    World("resume to its time, expiry with a wait", THREE, controls=2, expires=1, expire_to="QT", ops=("pause", "later", "cancel")),
    World("control, expiry, slow statements", THREE, controls=1, expires=1, **FINE),
    World("control, two odd ends", LATE, controls=1, outcomes=2, outcome_kinds="ETH"),
    World("pause, cancel, resume of one job", ((0, 0, "Q"), (0, 0, "Q")), controls=3, outcomes=1, outcome_kinds="TH", expires=1, on=(0,)),
    World("control twice, retry, expiry", ((0, 0, "Q"), (0, 0, "Q")), controls=2, expires=1, outcomes=1, outcome_kinds="TH"),
    World("two expiries, control", THREE, expires=2, controls=1),
    World("any connection lost", THREE, controls=1, expires=1, aborts=1, abort_who=ALL),
    World("raw delete, control, repair", THREE, raw=1, controls=1),
    World("raw delete, expiry, repair, late", LATE, raw=1, expires=1),
    World("raw delete rolled back, repair", THREE, raw=1, aborts=1, abort_who=("D",), **FINE),
)

RECOMMENDED = Design()
STATED = Design(claim_lock="row", head="queued", park_elsewhere=False, park_rest_holder=True, finish_cancel=False, expire_cancel=False,
                finish_flag=False, withdraw=False, free="holder", release="plain", control="row", settle="held",
                handover="parked", lock_order="name")
PLANTED = {
    "look and lock in one statement": Design(look="same"),
    "release without the lock": Design(finish_lock=False),
    "head not checked": Design(head="none"),
    "finish guarded by id only": Design(finish_guard="id"),
    "park without the lock": Design(park_needs_lock=False, claim_lock="row"),
    "resume of a paused non-holder forgets the release": Design(settle="forget", head="holder"),
    "control locks the row, then the target": Design(control="row"),
}
WITHOUT = {
    "1 a holder is the head": {"head": "queued"},
    "2 the QUEUED holder is not parked with the rest": {"park_rest_holder": True},
    "3 free is judged by status; a parked holder goes first": {"free": "holder"},
    "4 control takes the target lock first": {"control": "row"},
    "5 every cancel, resume, delete settles the target": {"settle": "held"},
    "6 retry and hand-back obey the cancel flag": {"finish_cancel": False},
    "7 an interrupted run ends as the row's flag says": {"finish_flag": False},
    "8 expiry obeys the cancel flag": {"expire_cancel": False},
    "9 candidates behind a head elsewhere are parked": {"park_elsewhere": False},
    "10 hand-over takes the best of QUEUED and parked": {"handover": "parked"},
    "11 locks in order of their keys": {"lock_order": "name"},
    "12 the task's transaction leaves the job row alone": {"touch_first": True},
    "13 the head is sought among parked jobs, too": {"head": "holder"},
}
VARIANTS = {
    "release with FOR UPDATE, waiting": {"release": "wait"},
    "a claim keeps its rows locked while it tries the target locks": {"claim_lock": "row"},
    "release by a plain sub-select": {"release": "plain"},
    "resume of a RUNNING job is refused": {"withdraw": False},
    "1 and 9 undone together": {"head": "queued", "park_elsewhere": False},
    "control row first, release waits": {"control": "row", "release": "wait"},
    "resume of a paused non-holder does not settle": {"settle": "forget"},
}


def run(job):
    """Explore one (group, title, world, design)."""
    group, title, world, design, seconds = job
    return group, title, explore(world, design, seconds=seconds)


def main():
    """Explore the chosen groups and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", default=["planted", "stated", "without", "recommended"],
                        help="planted, stated, without, variants, recommended (default: all but variants)")
    parser.add_argument("--traces", action="store_true", help="print the shortest trace of each kind of violation")
    parser.add_argument("--seconds", type=float, default=120, help="limit for one exploration")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    plain = [replace(w, symmetric=False) for w in SMALL]
    jobs = []
    if "planted" in args.groups:
        jobs += [("planted", t, w, d, args.seconds) for t, d in PLANTED.items() for w in plain[:-1]]
    if "stated" in args.groups:
        jobs += [("stated", "without hand-over", w, replace(STATED, handover=""), args.seconds) for w in plain]
        jobs += [("stated", "with hand-over", w, STATED, args.seconds) for w in plain]
    if "without" in args.groups:
        jobs += [("without", t, w, replace(RECOMMENDED, **kw), args.seconds) for t, kw in WITHOUT.items() for w in plain]
        # Only stray locks need rule 13.
        jobs += [("without", t, replace(w, symmetric=False), replace(RECOMMENDED, **kw), args.seconds)
                 for t, kw in WITHOUT.items() if "head" in kw for w in LARGE if w.stray]
    if "variants" in args.groups:
        jobs += [("variant", t, replace(w, symmetric=False), replace(RECOMMENDED, **kw), args.seconds)
                 for t, kw in VARIANTS.items() for w in SMALL + LARGE[-3:]]
    if "recommended" in args.groups:
        for hand in ("", "best"):
            title = "with hand-over" if hand else "without hand-over"
            jobs += [("recommended", title, w, Design(handover=hand), args.seconds) for w in SMALL + LARGE]
    states, best, order = 0, {}, []
    with multiprocessing.Pool(args.processes) as pool:
        for group, title, res in pool.imap(run, jobs):
            states += res.states
            key = (group, title)
            if key not in best:
                best[key] = {}
                order.append(key)
                print(f"\n{group}: {title}", flush=True)
            kinds = " ".join(sorted(res.found)) or "-"
            note = "" if res.complete else "  (stopped at the limit)"
            print(f"  {res.world:52} {res.states:8} states {res.seconds:6.1f} s  {kinds}{note}", flush=True)
            for kind, (text, trace) in res.found.items():
                if kind not in best[key] or len(trace) < len(best[key][kind][2]):
                    best[key][kind] = (res.world, text, trace)
    print(f"\n{states} states in all")
    if args.traces:
        for key in order:
            for kind, (world, text, trace) in sorted(best[key].items()):
                print(f"\n{key[0]}: {key[1]}: {kind} in '{world}': {text}")
                for step in trace:
                    print("    " + step)


if __name__ == "__main__":
    main()
