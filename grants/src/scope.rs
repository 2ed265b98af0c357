//! What an access token may do, as words: `mesh:read:builds.*`, `tasks:run`, `admin`.

use std::{fmt, str::FromStr};

use crate::{
    error::ScopeError,
    limits::{PATTERN_BYTES_MAX, SCOPES_BYTES_MAX, SCOPES_MAX},
};

/// A kind of thing that a scope allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Right {
    /// Everything.
    Admin,
    /// Read events of topics.
    MeshRead,
    /// Publish to topics.
    MeshPublish,
    /// See tasks and their output.
    TasksRead,
    /// Start tasks, write to them, end them.
    TasksRun,
    /// See owner sessions and their inboxes.
    SessionsRead,
    /// Acknowledge deliveries, end owner sessions.
    SessionsWrite,
    /// See the directory of what is alive.
    ParticipantsRead,
    /// Observe and announce participants.
    ParticipantsWrite,
    /// Read the shared state.
    StateRead,
    /// Change the shared state.
    StateWrite,
    /// Mint grants for topics.
    GrantsMint,
    /// Create, change and remove residents.
    ResidentsWrite,
}

impl Right {
    /// All rights, in the order of the documentation.
    pub const ALL: [Self; 13] = [
        Self::Admin,
        Self::MeshRead,
        Self::MeshPublish,
        Self::TasksRead,
        Self::TasksRun,
        Self::SessionsRead,
        Self::SessionsWrite,
        Self::ParticipantsRead,
        Self::ParticipantsWrite,
        Self::StateRead,
        Self::StateWrite,
        Self::GrantsMint,
        Self::ResidentsWrite,
    ];

    /// The name in a token and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::MeshRead => "mesh:read",
            Self::MeshPublish => "mesh:publish",
            Self::TasksRead => "tasks:read",
            Self::TasksRun => "tasks:run",
            Self::SessionsRead => "sessions:read",
            Self::SessionsWrite => "sessions:write",
            Self::ParticipantsRead => "participants:read",
            Self::ParticipantsWrite => "participants:write",
            Self::StateRead => "state:read",
            Self::StateWrite => "state:write",
            Self::GrantsMint => "grants:mint",
            Self::ResidentsWrite => "residents:write",
        }
    }

    /// Whether a topic pattern may follow the name.
    pub const fn takes_pattern(self) -> bool {
        matches!(self, Self::MeshRead | Self::MeshPublish | Self::GrantsMint)
    }

    /// Whether who holds this right can run programs as the user of the home. A person is told so
    /// before a token is made.
    pub const fn runs_code(self) -> bool {
        matches!(self, Self::Admin | Self::TasksRun | Self::ResidentsWrite)
    }
}

/// One thing that an access token may do: a right, and for some rights a pattern of topics.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    right: Right,
    pattern: Option<String>,
}

impl Scope {
    /// A right on everything that it is about; for topics also on weft's own.
    pub const fn whole(right: Right) -> Self {
        Self {
            right,
            pattern: None,
        }
    }

    /// A right on the topics of a pattern, or on one topic.
    ///
    /// # Errors
    /// [`ScopeError`] when the right takes no pattern, or the pattern is none.
    pub fn on(right: Right, pattern: &str) -> Result<Self, ScopeError> {
        if !right.takes_pattern() {
            return Err(ScopeError::NoPattern(right.name()));
        }
        if !is_pattern(pattern) {
            return Err(ScopeError::Pattern(right.name()));
        }
        Ok(Self {
            right,
            pattern: Some(pattern.to_owned()),
        })
    }

    /// The right.
    pub const fn right(&self) -> Right {
        self.right
    }

    /// The topic pattern, if the right is bound to one.
    pub fn pattern(&self) -> Option<&str> {
        self.pattern.as_deref()
    }

    /// Whether everything that `wanted` allows is allowed by this one, too. One right never implies
    /// another, but for `admin`, which implies all.
    pub fn covers(&self, wanted: &Self) -> bool {
        if self.right == Right::Admin {
            return true;
        }
        self.right == wanted.right
            && match (self.pattern(), wanted.pattern()) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(outer), Some(inner)) => pattern_covers(outer, inner),
            }
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        for right in Right::ALL {
            match text.strip_prefix(right.name()) {
                Some("") => return Ok(Self::whole(right)),
                Some(rest) => {
                    if let Some(pattern) = rest.strip_prefix(':') {
                        return Self::on(right, pattern);
                    }
                }
                None => {}
            }
        }
        Err(ScopeError::Unknown)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.right.name())?;
        match &self.pattern {
            Some(pattern) => write!(f, ":{pattern}"),
            None => Ok(()),
        }
    }
}

/// All that one access token may do: at least one scope, and no more than fit into a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    /// The scopes, in the order they were given.
    pub fn iter(&self) -> std::slice::Iter<'_, Scope> {
        self.0.iter()
    }

    /// Whether one of the scopes allows all of `wanted`.
    pub fn covers(&self, wanted: &Scope) -> bool {
        self.iter().any(|scope| scope.covers(wanted))
    }

    /// Whether a token of these scopes may mint one of `wanted`. Several patterns that only together
    /// make up a wanted one do not count.
    pub fn covers_all(&self, wanted: &Self) -> bool {
        wanted.iter().all(|scope| self.covers(scope))
    }

    /// The scopes with which one can run programs, to be named before a token is made.
    pub fn running_code(&self) -> impl Iterator<Item = &Scope> {
        self.iter().filter(|scope| scope.right.runs_code())
    }
}

impl<'a> IntoIterator for &'a Scopes {
    type Item = &'a Scope;
    type IntoIter = std::slice::Iter<'a, Scope>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl TryFrom<Vec<Scope>> for Scopes {
    type Error = ScopeError;

    fn try_from(scopes: Vec<Scope>) -> Result<Self, ScopeError> {
        if scopes.is_empty() {
            return Err(ScopeError::Empty);
        }
        if scopes.len() > SCOPES_MAX {
            return Err(ScopeError::TooMany);
        }
        let scopes = Self(scopes);
        if scopes.to_string().len() > SCOPES_BYTES_MAX {
            return Err(ScopeError::TooLong);
        }
        Ok(scopes)
    }
}

/// Scopes with exactly one space between them, as in the claim `scope`.
impl FromStr for Scopes {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        if text.is_empty() {
            return Err(ScopeError::Empty);
        }
        if text.len() > SCOPES_BYTES_MAX {
            return Err(ScopeError::TooLong);
        }
        let scopes: Vec<Scope> = text.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        scopes.try_into()
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, scope) in self.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{scope}")?;
        }
        Ok(())
    }
}

/// The names of all rights, as a person would write them.
pub(crate) fn names() -> String {
    let name = |right: Right| {
        let pattern = if right.takes_pattern() {
            "[:pattern]"
        } else {
            ""
        };
        format!("{}{pattern}", right.name())
    };
    Right::ALL.map(name).join(" ")
}

fn is_pattern(text: &str) -> bool {
    let word = |token: &str| {
        !token.is_empty()
            && token
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let (front, last) = text
        .rsplit_once('.')
        .map_or((None, text), |(front, last)| (Some(front), last));
    text.len() <= PATTERN_BYTES_MAX
        && (word(last) || last == "*" || last == ">")
        && front
            .into_iter()
            .flat_map(|front| front.split('.'))
            .all(|token| word(token) || token == "*")
}

/// Whether every topic that `inner` matches is matched by `outer`. A topic is a pattern, too, of
/// itself alone. No wildcard in the first token stands for `weft`, the root of weft's own topics.
fn pattern_covers(outer: &str, inner: &str) -> bool {
    let mut outer = outer.split('.');
    let mut inner = inner.split('.');
    let mut first = true;
    loop {
        let reserved = |token| first && token == "weft";
        match (outer.next(), inner.next()) {
            (None, None) => return true,
            (Some(">"), Some(token)) => return !reserved(token),
            (Some("*"), Some(token)) if token != ">" && !reserved(token) => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
        first = false;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scope(text: &str) -> Scope {
        text.parse().unwrap()
    }

    #[test]
    fn every_right_is_read_as_it_is_shown() {
        for right in Right::ALL {
            assert_eq!(scope(right.name()), Scope::whole(right));
            assert_eq!(Scope::whole(right).to_string(), right.name());
        }
        let bound = scope("mesh:publish:builds.*");
        assert_eq!(bound.right(), Right::MeshPublish);
        assert_eq!(bound.pattern(), Some("builds.*"));
        assert_eq!(bound.to_string(), "mesh:publish:builds.*");
    }

    #[test]
    fn what_is_no_scope_is_refused() {
        for text in [
            "",
            "mesh",
            "mesh:",
            "Admin",
            "mesh:readx",
            "mesh:reads:a",
            "*",
            "é",
        ] {
            assert_eq!(text.parse::<Scope>(), Err(ScopeError::Unknown), "{text}");
        }
        for text in ["admin:a", "tasks:run:a", "admin:"] {
            let refused = text.parse::<Scope>();
            assert!(matches!(refused, Err(ScopeError::NoPattern(_))), "{text}");
        }
        let long = "a".repeat(PATTERN_BYTES_MAX + 1);
        for pattern in [
            "", ".", "a..b", ".a", "a.", "a*", "a.>.b", ">.a", ">>", "a b", "é", "a:b", &long,
        ] {
            let refused = format!("mesh:read:{pattern}").parse::<Scope>();
            assert!(matches!(refused, Err(ScopeError::Pattern(_))), "{pattern}");
        }
        for pattern in [
            "a",
            "*",
            ">",
            "a.>",
            "*.>",
            "*.b.*",
            "weft.dead.x",
            &long[1..],
        ] {
            assert!(Scope::on(Right::MeshRead, pattern).is_ok(), "{pattern}");
        }
    }

    #[test]
    fn lists_have_single_spaces_and_limits() {
        let text = "mesh:read:a.* tasks:run admin";
        let scopes: Scopes = text.parse().unwrap();
        assert_eq!(scopes.to_string(), text);
        let running: Vec<String> = scopes.running_code().map(Scope::to_string).collect();
        assert_eq!(running, ["tasks:run", "admin"]);

        assert_eq!("".parse::<Scopes>(), Err(ScopeError::Empty));
        assert_eq!(Scopes::try_from(Vec::new()), Err(ScopeError::Empty));
        for text in [
            " ",
            " admin",
            "admin ",
            "admin  mesh:read",
            "admin\tmesh:read",
        ] {
            assert_eq!(text.parse::<Scopes>(), Err(ScopeError::Unknown), "{text}");
        }
        let many = vec!["admin"; SCOPES_MAX + 1].join(" ");
        assert_eq!(many.parse::<Scopes>(), Err(ScopeError::TooMany));
        let wide = scope(&format!("mesh:read:{}", "a".repeat(PATTERN_BYTES_MAX)));
        let full = vec![wide; SCOPES_MAX];
        assert_eq!(Scopes::try_from(full), Err(ScopeError::TooLong));
    }

    #[test]
    fn a_scope_covers_what_is_not_wider() {
        let covered = [
            ("admin", "tasks:run"),
            ("admin", "admin"),
            ("mesh:read", "mesh:read"),
            ("mesh:read", "mesh:read:weft.>"),
            ("mesh:read:>", "mesh:read:a"),
            ("mesh:read:>", "mesh:read:>"),
            ("mesh:read:>", "mesh:read:*.a"),
            ("mesh:read:a.>", "mesh:read:a.b.c"),
            ("mesh:read:a.>", "mesh:read:a.*"),
            ("mesh:read:a.*", "mesh:read:a.b"),
            ("mesh:read:*.b", "mesh:read:*.b"),
            ("mesh:read:a.*.>", "mesh:read:a.weft.c"),
            ("mesh:read:weft.>", "mesh:read:weft.dead.x"),
        ];
        for (outer, inner) in covered {
            assert!(scope(outer).covers(&scope(inner)), "{outer} {inner}");
        }
        let wider = [
            ("tasks:run", "tasks:read"),
            ("tasks:run", "admin"),
            ("mesh:read", "mesh:publish:a"),
            ("mesh:read:>", "mesh:read"),
            ("mesh:read:>", "mesh:read:weft.dead"),
            ("mesh:read:>", "mesh:read:weft.>"),
            ("mesh:read:*.a", "mesh:read:weft.a"),
            ("mesh:read:*", "mesh:read:>"),
            ("mesh:read:*", "mesh:read:a.b"),
            ("mesh:read:a.>", "mesh:read:a"),
            ("mesh:read:a.*", "mesh:read:a.>"),
            ("mesh:read:a.*", "mesh:read:a"),
            ("mesh:read:a.b", "mesh:read:a.*"),
            ("mesh:read:a.b", "mesh:read:>"),
        ];
        for (outer, inner) in wider {
            assert!(!scope(outer).covers(&scope(inner)), "{outer} {inner}");
        }
    }

    #[test]
    fn a_token_mints_nothing_wider_than_itself() {
        let own: Scopes = "mesh:read:a.> grants:mint".parse().unwrap();
        let may = |text: &str| own.covers_all(&text.parse().unwrap());
        assert!(may("mesh:read:a.b"));
        assert!(may("grants:mint:a mesh:read:a.>"));
        assert!(!may("mesh:read:a.b tasks:read"));
        assert!(!may("admin"));
        assert!(own.covers(&scope("grants:mint:b")));
        assert!(!own.covers(&scope("mesh:read:b")));
    }

    /// Whether a pattern matches a topic, written another way than the code under test.
    fn matches(pattern: &[&str], topic: &[&str], first: bool) -> bool {
        match (pattern, topic) {
            ([], []) => true,
            ([">"], [head, ..]) => !first || *head != "weft",
            (["*", rest @ ..], [head, tail @ ..]) => {
                (!first || *head != "weft") && matches(rest, tail, false)
            }
            ([one, rest @ ..], [head, tail @ ..]) => one == head && matches(rest, tail, false),
            _ => false,
        }
    }

    fn pattern() -> impl Strategy<Value = Vec<&'static str>> {
        let token = || prop::sample::select(vec!["a", "b", "weft", "*"]);
        let last = prop::sample::select(vec!["a", "b", "weft", "*", ">"]);
        (prop::collection::vec(token(), 0..3), last).prop_map(|(mut tokens, last)| {
            tokens.push(last);
            tokens
        })
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            if let Ok(scopes) = text.parse::<Scopes>() {
                prop_assert_eq!(scopes.to_string(), text);
            }
        }

        #[test]
        fn covering_means_matching_all_that_the_other_matches(
            outer in pattern(),
            inner in pattern(),
            topic in prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "weft"]), 1..5),
        ) {
            let covers = pattern_covers(&outer.join("."), &inner.join("."));
            if covers && matches(&inner, &topic, true) {
                prop_assert!(matches(&outer, &topic, true));
            }
            prop_assert_eq!(
                pattern_covers(&outer.join("."), &topic.join(".")),
                matches(&outer, &topic, true)
            );
        }
    }
}
