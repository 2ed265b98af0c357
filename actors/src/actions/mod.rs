//! The verbs, a file for each noun's verbs that belong together. Every one is in the list below and nowhere else.

mod capabilities;
mod grants;
mod inbox;
mod mesh;
pub(crate) mod node;
mod residents;
mod retention;
mod tasks_input;
mod tasks_look;
mod tasks_own;
mod tasks_read;
mod tasks_run;
mod tasks_screen;
mod tasks_stop;
mod tasks_wait;
mod tasks_watch;
mod tokens;

use crate::action::{Action, of};

/// All actions, in no order.
pub(crate) fn all() -> Vec<Action> {
    vec![
        of::<capabilities::Capabilities>(),
        of::<grants::Grant>(),
        of::<grants::Grants>(),
        of::<grants::Revoke>(),
        of::<inbox::Ack>(),
        of::<inbox::Read>(),
        of::<mesh::Publish>(),
        of::<mesh::PublishBatch>(),
        of::<mesh::Read>(),
        of::<mesh::Topics>(),
        of::<node::Status>(),
        of::<node::Stop>(),
        of::<residents::Create>(),
        of::<residents::Get>(),
        of::<residents::List>(),
        of::<residents::Log>(),
        of::<residents::Pause>(),
        of::<residents::Remove>(),
        of::<residents::Resume>(),
        of::<residents::Tell>(),
        of::<retention::Retain>(),
        of::<tasks_input::CloseInput>(),
        of::<tasks_input::Resize>(),
        of::<tasks_input::Signal>(),
        of::<tasks_input::Write>(),
        of::<tasks_look::External>(),
        of::<tasks_look::Get>(),
        of::<tasks_look::List>(),
        of::<tasks_own::Adopt>(),
        of::<tasks_own::SetLease>(),
        of::<tasks_read::Read>(),
        of::<tasks_run::Run>(),
        of::<tasks_screen::Screen>(),
        of::<tasks_stop::Stop>(),
        of::<tasks_wait::Wait>(),
        of::<tasks_watch::Watch>(),
        of::<tokens::Create>(),
        of::<tokens::List>(),
        of::<tokens::Revoke>(),
    ]
}
