//! The wake registry: who waits for which topics and keys. A wake is a hint, it carries no event.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::name::Topic;
use crate::pattern::Pattern;

/// One who waits. Several wakes before he looks are one.
///
/// Watchers see wakes from the moment they are registered: register, then read, then wait, and nothing is missed.
/// Dropping it ends the registration.
#[derive(Debug)]
#[must_use = "a watcher that is dropped hears nothing"]
pub struct Watcher {
    signal: Arc<Notify>,
    interests: Vec<Interest>,
    registry: Weak<Registry>,
}

impl Watcher {
    /// Waits until something matching was committed since the last call (since registration, for the first).
    ///
    /// Cancel safe: a wake that comes while nobody waits is kept for the next call. It may come without anything new
    /// to read, so read and wait again.
    pub async fn changed(&mut self) {
        self.signal.notified().await;
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.forget(&self.signal, &self.interests);
        }
    }
}

/// What a watcher waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Interest {
    Topic(Arc<str>),
    Wild(Pattern),
    Key(Box<str>),
}

type Signals = Vec<Arc<Notify>>;

#[derive(Debug, Default)]
struct Waiting {
    topics: HashMap<Arc<str>, Signals>,
    wild: Vec<(Pattern, Arc<Notify>)>,
    keys: HashMap<Box<str>, Signals>,
}

/// All watchers of a store.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    waiting: Mutex<Waiting>,
}

impl Registry {
    pub(crate) fn watch(self: &Arc<Self>, patterns: &[Pattern]) -> Watcher {
        let interest = |pattern: &Pattern| {
            if pattern.is_exact() {
                return Interest::Topic(pattern.as_str().into());
            }
            Interest::Wild(pattern.clone())
        };
        self.register(patterns.iter().map(interest).collect())
    }

    pub(crate) fn watch_key(self: &Arc<Self>, key: &str) -> Watcher {
        self.register(vec![Interest::Key(key.into())])
    }

    /// Wakes every watcher of these topics and keys, each at most once a match.
    pub(crate) fn wake<'a>(&self, topics: impl Iterator<Item = &'a Topic>, keys: &[String]) {
        let waiting = self.lock();
        for topic in topics {
            waiting
                .topics
                .get(topic.as_str())
                .into_iter()
                .flatten()
                .for_each(|signal| signal.notify_one());
            for (pattern, signal) in &waiting.wild {
                if pattern.matches(topic) {
                    signal.notify_one();
                }
            }
        }
        for key in keys {
            waiting
                .keys
                .get(key.as_str())
                .into_iter()
                .flatten()
                .for_each(|signal| signal.notify_one());
        }
    }

    /// Wakes everybody, for an end that all must see.
    pub(crate) fn wake_all(&self) {
        let waiting = self.lock();
        waiting
            .topics
            .values()
            .chain(waiting.keys.values())
            .flatten()
            .for_each(|signal| signal.notify_one());
        waiting
            .wild
            .iter()
            .for_each(|(_, signal)| signal.notify_one());
    }

    fn register(self: &Arc<Self>, interests: Vec<Interest>) -> Watcher {
        let signal = Arc::new(Notify::new());
        let mut waiting = self.lock();
        for interest in &interests {
            let signal = Arc::clone(&signal);
            match interest.clone() {
                Interest::Topic(topic) => waiting.topics.entry(topic).or_default().push(signal),
                Interest::Wild(pattern) => waiting.wild.push((pattern, signal)),
                Interest::Key(key) => waiting.keys.entry(key).or_default().push(signal),
            }
        }
        drop(waiting);
        Watcher {
            signal,
            interests,
            registry: Arc::downgrade(self),
        }
    }

    fn forget(&self, signal: &Arc<Notify>, interests: &[Interest]) {
        let mut waiting = self.lock();
        for interest in interests {
            match interest {
                Interest::Topic(topic) => remove(waiting.topics.entry(Arc::clone(topic)), signal),
                Interest::Wild(_) => waiting
                    .wild
                    .retain(|(_, other)| !Arc::ptr_eq(other, signal)),
                Interest::Key(key) => remove(waiting.keys.entry(key.clone()), signal),
            }
        }
    }

    /// Nothing under the lock can leave it half changed, so a poisoned one is still good.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove<K>(entry: Entry<'_, K, Signals>, signal: &Arc<Notify>) {
    if let Entry::Occupied(mut signals) = entry {
        signals
            .get_mut()
            .retain(|other| !Arc::ptr_eq(other, signal));
        if signals.get().is_empty() {
            signals.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_woken(watcher: &mut Watcher) -> bool {
        let changed = std::pin::pin!(watcher.changed());
        matches!(
            changed.poll(&mut Context::from_waker(Waker::noop())),
            Poll::Ready(())
        )
    }

    fn wake(registry: &Registry, topic: &str) {
        registry.wake([topic.parse().unwrap()].iter(), &[]);
    }

    #[test]
    fn only_those_whose_patterns_match_are_woken() {
        let registry = Arc::new(Registry::default());
        let mut exact = registry.watch(&["a.b".parse().unwrap()]);
        let mut wild = registry.watch(&["a.*".parse().unwrap(), "c.>".parse().unwrap()]);
        let mut all = registry.watch(&[Pattern::all()]);
        let woken = |watchers: [&mut Watcher; 3]| watchers.map(is_woken);
        wake(&registry, "a.b");
        assert_eq!(woken([&mut exact, &mut wild, &mut all]), [true, true, true]);
        wake(&registry, "c.d");
        assert_eq!(
            woken([&mut exact, &mut wild, &mut all]),
            [false, true, true]
        );
        wake(&registry, "weft.timing");
        assert_eq!(
            woken([&mut exact, &mut wild, &mut all]),
            [false, false, false]
        );
    }

    #[test]
    fn a_wake_before_the_wait_is_kept_and_many_are_one() {
        let registry = Arc::new(Registry::default());
        let mut watcher = registry.watch_key("task:t-1");
        registry.wake([].iter(), &["task:t-1".to_owned(), "task:t-1".to_owned()]);
        assert!(is_woken(&mut watcher));
        assert!(!is_woken(&mut watcher));
        registry.wake([].iter(), &["task:t-2".to_owned()]);
        assert!(!is_woken(&mut watcher));
        registry.wake_all();
        assert!(is_woken(&mut watcher));
    }

    #[test]
    fn a_dropped_watcher_leaves_nothing_behind() {
        let registry = Arc::new(Registry::default());
        drop(registry.watch(&["a".parse().unwrap(), "b.*".parse().unwrap()]));
        drop(registry.watch_key("k"));
        let waiting = registry.lock();
        assert!(waiting.topics.is_empty() && waiting.wild.is_empty() && waiting.keys.is_empty());
    }
}
