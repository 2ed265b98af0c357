//! The demonstration's own world: a temporary folder with a home, its keys and a node, all gone at the end.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::app::App;
use crate::autostart::Starter;
use crate::client::Client;
use crate::config;
use crate::exit::Failure;
use crate::limits::ID_BYTES;
use crate::render::{list, text};

/// A free port of loopback.
const LISTEN: &str = "127.0.0.1:0";

/// A temporary home with its node.
pub(super) struct Stage {
    folder: PathBuf,
    starter: Starter,
    client: Client,
}

impl Stage {
    /// Makes the folder and the home. The node starts with the first call.
    pub(super) fn set(app: &App) -> Result<Self, Failure> {
        let name = crate::ids::random_hex(ID_BYTES)
            .map_err(|error| Failure::io("a random name", error))?;
        let folder = config::temp_dir().join(format!("weft-demo-{name}"));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| Failure::io(folder.display().to_string(), error))?;
        let folder = folder
            .canonicalize()
            .map_err(|error| Failure::io(folder.display().to_string(), error))?;
        match Stage::furnish(app, &folder) {
            Ok((starter, client)) => Ok(Stage {
                folder,
                starter,
                client,
            }),
            Err(failure) => {
                let _ = std::fs::remove_dir_all(&folder);
                Err(failure)
            }
        }
    }

    fn furnish(app: &App, folder: &Path) -> Result<(Starter, Client), Failure> {
        let work = folder.join("work");
        std::fs::create_dir(&work)
            .map_err(|error| Failure::io(work.display().to_string(), error))?;
        let state_dir = folder.join("state");
        let home = crate::home::make_new(&state_dir, &folder.join("home"))?;
        let starter = Starter::of_this_program(Some(&state_dir))
            .map_err(|error| Failure::io("this program's own path", error))?
            .listening(LISTEN);
        let client = Client::new(home, app.session(), Some(starter.clone()));
        Ok((starter, client))
    }

    /// Calls go here.
    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// A client with a connection of its own.
    pub(super) fn another_client(&self) -> Client {
        self.client.another()
    }

    /// Where the job works.
    pub(super) fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// The home's folder.
    pub(super) fn home(&self) -> PathBuf {
        self.client.home().root.clone()
    }

    /// The keys' folder: a `weft` inside the home's tasks must look there.
    pub(super) fn state_dir(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// This program's file.
    pub(super) fn program(&self) -> &Path {
        self.starter.program()
    }

    /// Ends what was started, then removes the folder.
    pub(super) async fn clear(mut self) -> Result<(), Failure> {
        let stopped = self.stop_all().await;
        let removed = std::fs::remove_dir_all(&self.folder)
            .map_err(|error| Failure::io(self.folder.display().to_string(), error));
        stopped.and(removed)
    }

    async fn stop_all(&mut self) -> Result<(), Failure> {
        // Without leave to start a node: one that is gone needs no end.
        let mut client = Client::new(self.client.home().clone(), None, None);
        let running = match client
            .read(
                "tasks.list",
                json!({"all": true, "states": ["starting", "running"]}),
            )
            .await
        {
            Err(Failure::NoNode { .. }) => return Ok(()),
            answer => answer?,
        };
        for task in list(&running, "tasks") {
            client
                .change("tasks.stop", json!({"id": text(task, "id")}))
                .await?;
        }
        let _: Value = client.change("node.stop", json!({})).await?;
        client.closed().await;
        Ok(())
    }
}
