//! The screens that were asked for, kept so that the next look reads only what came since. Bounded: the one that was not
//! looked at for longest is read anew when it is asked for again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits::{SCREEN_CELLS_MAX, SCREENS_MAX};
use crate::task::screen::Screen;

/// Screens of a node, by task.
#[derive(Default)]
pub struct Screens {
    /// The one that was looked at last stands last.
    kept: Mutex<VecDeque<Kept>>,
}

/// A screen, or the place for one that nobody has read yet. Two who ask for the same one take turns.
pub type Shared = Arc<Mutex<Option<Screen>>>;

struct Kept {
    id: String,
    screen: Shared,
    cells: usize,
}

impl Screens {
    /// The place of task `id`'s screen.
    pub fn of(&self, id: &str) -> Shared {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().position(|one| one.id == id);
        let one = found
            .and_then(|at| kept.remove(at))
            .unwrap_or_else(|| Kept {
                id: id.to_owned(),
                screen: Shared::default(),
                cells: 0,
            });
        let screen = one.screen.clone();
        kept.push_back(one);
        bound(&mut kept);
        screen
    }

    /// Notes how large it is, and lets others go where all are too many.
    pub fn note(&self, id: &str, cells: usize) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = kept.iter_mut().find(|one| one.id == id) {
            one.cells = cells;
        }
        bound(&mut kept);
    }
}

fn bound(kept: &mut VecDeque<Kept>) {
    let cells = |kept: &VecDeque<Kept>| kept.iter().map(|one| one.cells).sum::<usize>();
    while kept.len() > SCREENS_MAX || (kept.len() > 1 && cells(kept) > SCREEN_CELLS_MAX) {
        kept.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(screens: &Screens) -> Vec<String> {
        let kept = screens.kept.lock().unwrap();
        kept.iter().map(|one| one.id.clone()).collect()
    }

    #[test]
    fn the_one_not_looked_at_for_longest_goes_first() {
        let screens = Screens::default();
        for n in 0..SCREENS_MAX {
            screens.of(&n.to_string());
        }
        let first = screens.of("0");
        screens.of("one more");
        assert_eq!(ids(&screens).len(), SCREENS_MAX);
        assert!(!ids(&screens).contains(&"1".to_owned()));
        assert!(Arc::ptr_eq(&first, &screens.of("0")), "it is the same one");
    }

    #[test]
    fn large_ones_count_for_more_and_the_last_one_stays() {
        let screens = Screens::default();
        for id in ["a", "b", "c"] {
            screens.of(id);
            screens.note(id, SCREEN_CELLS_MAX / 2);
        }
        assert_eq!(ids(&screens), ["b", "c"]);
        screens.note("c", SCREEN_CELLS_MAX * 2);
        assert_eq!(ids(&screens), ["c"]);
    }
}
