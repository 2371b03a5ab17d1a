//! What is a replica's life? Asked for, starting, ready, draining, released.
//!
//! As with pods: a scale-down first gives up replicas that are still starting, then the youngest ready ones; a replica that drains finishes
//! what it has and is never called back, because a terminating pod is not.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::units::Replicas;

/// A replica of one pool. Never used twice, so that an event for a replica that is gone finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplicaId(u32);

impl ReplicaId {
    /// Its number within its pool; the first is 0.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// What one replica does, as far as its life depends on it.
pub trait Server: Clone {
    /// Whether it has no request.
    fn is_idle(&self) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Ready,
    Draining,
}

#[derive(Clone, Debug)]
struct Member<S> {
    state: State,
    asked_for_at: Duration,
    server: S,
}

/// The replicas of one role, oldest first.
#[derive(Clone, Debug)]
pub struct Pool<S> {
    members: BTreeMap<ReplicaId, Member<S>>,
    next_id: u32,
    /// What a new member is.
    template: S,
    /// Who took the last request that was dealt out in turn.
    dealt_to: Option<ReplicaId>,
    /// Replica time of those that are gone.
    released: Duration,
}

impl<S: Server> Pool<S> {
    /// A pool with that many ready replicas at time zero, each a copy of `template`.
    pub fn new(replicas: Replicas, template: S) -> Self {
        let mut pool = Self { members: BTreeMap::new(), next_id: 0, template, dealt_to: None, released: Duration::ZERO };
        for _ in 0..replicas.0 {
            pool.add(Duration::ZERO, State::Ready);
        }
        pool
    }

    fn add(&mut self, now: Duration, state: State) -> ReplicaId {
        let id = ReplicaId(self.next_id);
        self.next_id += 1;
        self.members.insert(id, Member { state, asked_for_at: now, server: self.template.clone() });
        id
    }

    fn count(&self, state: State) -> Replicas {
        // A pool holds no more members than `set_target` took from a u32, plus those that drain.
        Replicas(u32::try_from(self.members.values().filter(|member| member.state == state).count()).unwrap_or(u32::MAX))
    }

    /// Replicas that take requests.
    pub fn ready(&self) -> Replicas {
        self.count(State::Ready)
    }

    /// Replicas that will take requests.
    pub fn starting(&self) -> Replicas {
        self.count(State::Starting)
    }

    /// Replicas that only finish what they have.
    pub fn draining(&self) -> Replicas {
        self.count(State::Draining)
    }

    /// Makes the ready and starting replicas `target` in number. Returns those that begin to start now.
    pub fn set_target(&mut self, target: Replicas, now: Duration) -> Vec<ReplicaId> {
        let live = self.ready().0 + self.starting().0;
        for _ in target.0..live {
            self.give_up_one(now);
        }
        (live..target.0).map(|_| self.add(now, State::Starting)).collect()
    }

    fn give_up_one(&mut self, now: Duration) {
        let youngest = |state| self.members.iter().rev().find(|(_, member)| member.state == state).map(|(&id, _)| id);
        if let Some(id) = youngest(State::Starting) {
            self.release(id, now);
        } else if let Some(id) = youngest(State::Ready) {
            if let Some(member) = self.members.get_mut(&id) {
                member.state = State::Draining;
            }
            self.release_if_drained(id, now);
        }
    }

    /// A start-up is over. `false` if the replica was given up in the meantime.
    pub fn started(&mut self, id: ReplicaId) -> bool {
        self.members.get_mut(&id).map(|member| member.state = State::Ready).is_some()
    }

    /// To be called when a replica has finished a request.
    pub fn release_if_drained(&mut self, id: ReplicaId, now: Duration) {
        if self.members.get(&id).is_some_and(|member| member.state == State::Draining && member.server.is_idle()) {
            self.release(id, now);
        }
    }

    fn release(&mut self, id: ReplicaId, now: Duration) {
        if let Some(member) = self.members.remove(&id) {
            self.released += now.saturating_sub(member.asked_for_at);
        }
    }

    /// The ready replica with the least `load`; of equals the oldest.
    pub fn least_loaded<L: Ord>(&self, mut load: impl FnMut(&S) -> L) -> Option<ReplicaId> {
        let ready = self.members.iter().filter(|(_, member)| member.state == State::Ready);
        ready.min_by_key(|(_, member)| load(&member.server)).map(|(&id, _)| id)
    }

    /// The ready replica after the one that this answered last; after the youngest comes the oldest.
    pub fn next_in_turn(&mut self) -> Option<ReplicaId> {
        let ready = || self.members.iter().filter(|(_, member)| member.state == State::Ready).map(|(&id, _)| id);
        let next = ready().find(|&id| Some(id) > self.dealt_to).or_else(|| ready().next());
        self.dealt_to = next.or(self.dealt_to);
        next
    }

    /// A replica in whatever state; `None` once it is released.
    pub fn get_mut(&mut self, id: ReplicaId) -> Option<&mut S> {
        self.members.get_mut(&id).map(|member| &mut member.server)
    }

    /// A replica that answers, ready or draining, and when it was asked for.
    pub fn serving(&self, id: ReplicaId) -> Option<(Duration, &S)> {
        let member = self.members.get(&id).filter(|member| member.state != State::Starting)?;
        Some((member.asked_for_at, &member.server))
    }

    /// All replicas that answer, oldest first.
    pub fn all_serving(&self) -> impl Iterator<Item = (ReplicaId, &S)> {
        self.members.iter().filter(|(_, member)| member.state != State::Starting).map(|(&id, member)| (id, &member.server))
    }

    /// The replicas that take requests, oldest first.
    pub fn all_ready(&self) -> impl Iterator<Item = ReplicaId> {
        self.members.iter().filter(|(_, member)| member.state == State::Ready).map(|(&id, _)| id)
    }

    /// All replicas that are not released.
    pub fn servers_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.members.values_mut().map(|member| &mut member.server)
    }

    /// Replica time used so far, from the request for each replica to its release: what is paid for.
    pub fn replica_time(&self, now: Duration) -> Duration {
        self.members.values().map(|member| now.saturating_sub(member.asked_for_at)).sum::<Duration>() + self.released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Busy(bool);

    impl Server for Busy {
        fn is_idle(&self) -> bool {
            !self.0
        }
    }

    fn states(pool: &Pool<Busy>) -> (u32, u32, u32) {
        (pool.ready().0, pool.starting().0, pool.draining().0)
    }

    #[test]
    fn a_replica_that_still_starts_is_given_up_first_and_its_start_comes_to_nothing() {
        let mut pool = Pool::new(Replicas(2), Busy::default());
        let starting = pool.set_target(Replicas(3), Duration::ZERO);
        assert_eq!(states(&pool), (2, 1, 0));
        assert!(pool.set_target(Replicas(2), Duration::from_secs(1)).is_empty());
        assert_eq!(states(&pool), (2, 0, 0));
        assert!(!pool.started(starting[0]));
        assert_eq!(pool.replica_time(Duration::from_secs(10)), Duration::from_secs(21));
    }

    #[test]
    fn a_busy_replica_drains_and_is_not_called_back() {
        let mut pool = Pool::new(Replicas(2), Busy::default());
        let youngest = ReplicaId(1);
        pool.get_mut(youngest).unwrap().0 = true;
        pool.set_target(Replicas(1), Duration::ZERO);
        assert_eq!(states(&pool), (1, 0, 1));
        pool.set_target(Replicas(2), Duration::ZERO);
        assert_eq!(states(&pool), (1, 1, 1));
        pool.release_if_drained(youngest, Duration::ZERO);
        assert_eq!(states(&pool), (1, 1, 1));
        pool.get_mut(youngest).unwrap().0 = false;
        pool.release_if_drained(youngest, Duration::ZERO);
        assert_eq!(states(&pool), (1, 1, 0));
    }

    #[test]
    fn an_idle_replica_is_released_at_once() {
        let mut pool = Pool::new(Replicas(3), Busy::default());
        pool.set_target(Replicas(0), Duration::from_secs(5));
        assert_eq!(states(&pool), (0, 0, 0));
        assert_eq!(pool.replica_time(Duration::from_secs(60)), Duration::from_secs(15));
    }

    #[test]
    fn turns_go_round_the_ready_replicas() {
        let mut pool = Pool::new(Replicas(3), Busy::default());
        let turns = |pool: &mut Pool<Busy>, times| (0..times).map(|_| pool.next_in_turn().unwrap().number()).collect::<Vec<_>>();
        assert_eq!(turns(&mut pool, 4), [0, 1, 2, 0]);
        pool.set_target(Replicas(2), Duration::ZERO);
        assert_eq!(turns(&mut pool, 3), [1, 0, 1]);
        pool.set_target(Replicas(0), Duration::ZERO);
        assert_eq!(pool.next_in_turn(), None);
    }
}
