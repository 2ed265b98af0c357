//! Who calls, and what that allows. Made at the doors, asked by the actions.

use weft_grants::scope::Right;
use weft_grants::{Scope, Scopes};
use weft_mesh::Origin;

use crate::check;
use crate::error::{Error, Result};

/// How a caller was recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A process of this user on the home's Unix socket, below no task.
    Local,
    /// A process on the Unix socket with the shim of this task among its ancestors.
    Task {
        /// That task.
        id: String,
    },
    /// The bearer of an access token.
    Token {
        /// The token's id.
        jti: String,
        /// What it allows.
        scopes: Scopes,
    },
}

/// One call's caller: identity and the owner session it acts as.
#[derive(Debug, Clone)]
pub struct Caller {
    /// How it was recognised.
    pub identity: Identity,
    /// The owner session it acts as.
    pub session: String,
}

impl Caller {
    /// The user at the node itself, as session `session`.
    pub fn local(session: impl Into<String>) -> Self {
        Caller {
            identity: Identity::Local,
            session: session.into(),
        }
    }

    /// What stands in the `from` of an event this caller publishes.
    pub fn from(&self) -> String {
        match &self.identity {
            Identity::Local => format!("session:{}", self.session),
            Identity::Task { id } => format!("task:{id}"),
            Identity::Token { jti, .. } => format!("token:{jti}"),
        }
    }

    /// `local` for processes on the Unix socket, `external` for what came over TCP.
    pub fn origin(&self) -> Origin {
        match self.identity {
            Identity::Local | Identity::Task { .. } => Origin::Local,
            Identity::Token { .. } => Origin::External,
        }
    }

    /// Whether events of this caller are marked untrusted.
    pub fn untrusted(&self) -> bool {
        self.origin() == Origin::External
    }

    /// Whose request ids these are: a repeat is recognised for the same caller only.
    pub fn request_space(&self) -> String {
        match &self.identity {
            Identity::Token { jti, .. } => format!("token:{jti}"),
            Identity::Local | Identity::Task { .. } => format!("session:{}", self.session),
        }
    }

    /// Acts as `session` where the call names one: anyone on the Unix socket may, a token only its own.
    pub fn acting_as(&self, session: Option<&str>) -> Result<String> {
        let Some(session) = session else {
            return Ok(self.session.clone());
        };
        check::name("session", session)?;
        match &self.identity {
            Identity::Token { scopes, .. }
                if session != self.session && !has(scopes, Right::SessionsWrite) =>
            {
                Err(Error::Forbidden(format!(
                    "this token acts as session {} only; `sessions:write` or `admin` lets it name another",
                    self.session
                )))
            }
            _ => Ok(session.to_owned()),
        }
    }

    /// Refuses a caller without `right`, whatever topics it is limited to.
    pub fn require(&self, right: Right) -> Result<()> {
        match &self.identity {
            Identity::Token { scopes, .. } if !has(scopes, right) => {
                Err(Error::Forbidden(format!(
                    "this needs the scope `{name}`; make a token with `weft token create --scope {name}`",
                    name = right.name()
                )))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a caller whose `right` does not cover all of `pattern`, a topic or a pattern of topics.
    pub fn require_on(&self, right: Right, pattern: &str) -> Result<()> {
        let Identity::Token { scopes, .. } = &self.identity else {
            return Ok(());
        };
        let wanted = Scope::on(right, pattern)
            .map_err(|error| Error::invalid("topic", error.to_string()))?;
        if scopes.covers(&wanted) {
            Ok(())
        } else {
            Err(Error::Forbidden(format!(
                "this token does not cover `{wanted}`"
            )))
        }
    }
}

fn has(scopes: &Scopes, right: Right) -> bool {
    scopes
        .iter()
        .any(|scope| scope.right() == right || scope.right() == Right::Admin)
}
