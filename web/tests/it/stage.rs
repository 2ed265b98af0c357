//! The stage: a node in a temporary home with both doors open, and a client for it.

use std::future::Future;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderMap;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};
use weft_actors::Home;
use weft_actors::failpoint::FailPoints;
use weft_actors::house::{House, Settings, ShimProgram};
use weft_grants::Keys;
use weft_mesh::{Store, StoreOptions};
use weft_web::{TcpOptions, serve_tcp, serve_unix};

/// Longer than anything here takes on a busy machine, so that a test that hangs ends.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A node with both doors open.
pub(crate) struct Stage {
    pub(crate) house: Arc<House>,
    pub(crate) address: SocketAddr,
    pub(crate) doors: JoinSet<()>,
    socket: PathBuf,
    _folder: TempDir,
}

impl Stage {
    pub(crate) async fn open() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let house = house(&folder);
        let socket = house.home.socket();
        let unix = UnixListener::bind(&socket).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let mut doors = JoinSet::new();
        doors.spawn(serve_unix(house.clone(), unix));
        doors.spawn(serve_tcp(
            house.clone(),
            tcp,
            TcpOptions::with_names(vec!["build.lan".to_owned()]),
        ));
        Stage {
            house,
            address,
            doors,
            socket,
            _folder: folder,
        }
    }

    /// A connection to the Unix socket.
    pub(crate) async fn unix(&self) -> Client {
        Client::over(
            UnixStream::connect(&self.socket).await.unwrap(),
            "localhost".to_owned(),
        )
        .await
    }

    /// A connection to the TCP port.
    pub(crate) async fn tcp(&self) -> Client {
        Client::over(
            TcpStream::connect(self.address).await.unwrap(),
            self.address.to_string(),
        )
        .await
    }

    /// What the TCP port answers to these bytes, to the end of the connection.
    pub(crate) async fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The other side may close without having read all.
        let _ = patiently(stream.read_to_end(&mut answer)).await;
        String::from_utf8(answer).unwrap()
    }

    /// Calls an action as the user of the home.
    pub(crate) async fn call(&self, action: &str, input: Value) -> Value {
        let reply = self
            .unix()
            .await
            .post(&format!("/v1/call/{action}"), &[], &input)
            .await;
        assert_eq!(reply.status, 200, "{action}: {}", reply.body);
        reply.body
    }

    /// An access token with these scopes.
    pub(crate) async fn token(&self, scopes: &[&str]) -> String {
        let made = self.call("tokens.create", json!({"scopes": scopes})).await;
        made["token"].as_str().unwrap().to_owned()
    }

    /// A grant for `topic`.
    pub(crate) async fn grant(&self, topic: &str, uses: u32) -> String {
        let made = self
            .call("mesh.grant", json!({"topic": topic, "uses": uses}))
            .await;
        made["token"].as_str().unwrap().to_owned()
    }

    /// The events of a topic.
    pub(crate) async fn events(&self, topic: &str) -> Vec<Value> {
        let page = self
            .call("mesh.read", json!({"topics": [topic], "limit": 1000}))
            .await;
        page["events"].as_array().unwrap().clone()
    }
}

fn house(folder: &TempDir) -> Arc<House> {
    let home = Home {
        root: folder.path().join("home"),
        state: folder.path().join("state"),
        id: "h1".to_owned(),
    };
    for path in [&home.root, &home.state] {
        std::fs::DirBuilder::new().mode(0o700).create(path).unwrap();
    }
    let keys = Keys::load_or_create(&home.state, weft_actors::house::now_ms()).unwrap();
    let mut options = StoreOptions::new(home.database(), home.store_mark());
    options.schema = weft_actors::schema();
    options.free_floor = Some(0);
    let store = Store::open(options).unwrap();
    let settings = Settings {
        version: "0".to_owned(),
        weft: PathBuf::from("/nonexistent/weft"),
        base_env: Vec::new(),
        shell: "/bin/sh".to_owned(),
        hang_ms: 0,
        nofile: None,
        node_env: Vec::new(),
        free_floor: 0,
        public_url: None,
        fail_points: FailPoints::parse(""),
    };
    let shim = ShimProgram {
        file: std::fs::File::open("/proc/self/exe").unwrap().into(),
        takes_verb: true,
    };
    House::new(home, settings, store, shim, keys)
}

/// Waits, but not for ever.
pub(crate) async fn patiently<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work)
        .await
        .expect("it takes too long")
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Reply {
    /// The name of the problem it is, or `ok`.
    pub(crate) fn slug(&self) -> &str {
        if self.status < 300 {
            "ok"
        } else {
            self.body["type"]
                .as_str()
                .unwrap()
                .rsplit(':')
                .next()
                .unwrap()
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

/// One kept-alive connection.
pub(crate) struct Client {
    requests: SendRequest<Full<Bytes>>,
    ended: JoinHandle<hyper::Result<()>>,
    host: String,
}

impl Client {
    async fn over<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        socket: S,
        host: String,
    ) -> Client {
        let (requests, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
        Client {
            requests,
            ended: tokio::spawn(connection),
            host,
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(method).uri(path);
        if !headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"))
        {
            request = request.header("host", &self.host);
        }
        if !body.is_empty()
            && !headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Full::new(body)).unwrap()
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let request = self.request(method, path, headers, Bytes::copy_from_slice(body));
        patiently(async {
            self.requests.ready().await.unwrap();
            let response = self.requests.send_request(request).await.unwrap();
            let (head, body) = response.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let body = serde_json::from_str(&text).unwrap_or(Value::Null);
            Reply {
                status: head.status.as_u16(),
                headers: head.headers,
                body,
                text,
            }
        })
        .await
    }

    pub(crate) async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.send(Method::GET, path, headers, b"").await
    }

    pub(crate) async fn post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Reply {
        self.send(Method::POST, path, headers, body.to_string().as_bytes())
            .await
    }

    /// Publishes to a topic, or posts with a grant.
    pub(crate) async fn publish(
        &mut self,
        topic: &str,
        token: Option<&str>,
        body: &Value,
    ) -> Reply {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<(&str, &str)> = bearer
            .iter()
            .map(|bearer| ("authorization", bearer.as_str()))
            .collect();
        self.post(&format!("/v1/topics/{topic}/events"), &headers, body)
            .await
    }

    /// Opens a stream; the connection is its own from then on.
    pub(crate) async fn stream(mut self, path: &str, headers: &[(&str, &str)]) -> EventStream {
        let request = self.request(Method::GET, path, headers, Bytes::new());
        patiently(self.requests.ready()).await.unwrap();
        let response = patiently(self.requests.send_request(request))
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        let (head, body) = response.into_parts();
        EventStream {
            headers: head.headers,
            body,
            text: String::new(),
            _client: self,
        }
    }

    /// Returns when the node has closed the connection.
    pub(crate) async fn closed(&mut self) {
        // How it ended does not matter here.
        let _ = patiently(&mut self.ended).await.unwrap();
    }
}

/// One block of a stream.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) event: String,
    pub(crate) id: String,
    pub(crate) data: String,
}

impl Block {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

/// An open stream of events.
pub(crate) struct EventStream {
    pub(crate) headers: HeaderMap,
    body: Incoming,
    text: String,
    _client: Client,
}

impl EventStream {
    /// The next block; none at the stream's end.
    pub(crate) async fn next(&mut self) -> Option<Block> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (parse(block), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let frame = patiently(self.body.frame()).await?.unwrap();
            self.text
                .push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }

    /// The next block that says something.
    pub(crate) async fn next_said(&mut self) -> Block {
        loop {
            let block = self.next().await.expect("the stream ended");
            if !block.data.is_empty() {
                return block;
            }
        }
    }

    /// The texts of the next `count` events.
    pub(crate) async fn texts(&mut self, count: usize) -> Vec<String> {
        let mut texts = Vec::with_capacity(count);
        while texts.len() < count {
            texts.push(
                self.next_said().await.json()["text"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
            );
        }
        texts
    }
}

fn parse(text: &str) -> Block {
    let mut block = Block::default();
    for line in text.lines() {
        match line.split_once(": ").unwrap() {
            ("event", value) => value.clone_into(&mut block.event),
            ("id", value) => value.clone_into(&mut block.id),
            ("data", value) => value.clone_into(&mut block.data),
            ("retry", value) => assert!(value.parse::<u64>().is_ok()),
            other => panic!("{other:?}"),
        }
    }
    block
}
