//! A small blocking HTTP client over hyper: the home's socket, or TCP with a token.

use std::io;
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::runtime::Runtime;

/// Where a node is.
#[derive(Debug, Clone)]
enum Place {
    Unix(PathBuf),
    Tcp(String),
}

/// A client. Every request has a connection of its own.
#[derive(Debug, Clone)]
pub struct Client {
    place: Place,
    headers: Vec<(String, String)>,
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body as JSON; null where it is none.
    pub body: Value,
    /// The body as text.
    pub text: String,
}

impl Answer {
    /// The body of an answer that must be good.
    #[track_caller]
    pub fn ok(self, what: &str) -> Value {
        assert!(
            (200..300).contains(&self.status),
            "{what} was refused: {} {}",
            self.status,
            self.text
        );
        self.body
    }

    /// The slug of a refusal.
    pub fn slug(&self) -> String {
        self.body["type"]
            .as_str()
            .unwrap_or_default()
            .trim_start_matches("urn:weft:problem:")
            .to_owned()
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

impl Client {
    /// Of the socket of a home.
    pub fn unix(home: &Path) -> Self {
        Client {
            place: Place::Unix(home.join("node.sock")),
            headers: Vec::new(),
        }
    }

    /// Of `http://ADDRESS`.
    pub fn tcp(url: &str) -> Self {
        Client {
            place: Place::Tcp(url.trim_start_matches("http://").to_owned()),
            headers: Vec::new(),
        }
    }

    /// With a header on every request, in the place of one of that name.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// As an owner session.
    #[must_use]
    pub fn session(self, name: &str) -> Self {
        self.with("weft-session", name)
    }

    /// With a bearer token.
    #[must_use]
    pub fn bearer(self, token: &str) -> Self {
        self.with("authorization", &format!("Bearer {token}"))
    }

    /// Calls an action.
    #[track_caller]
    pub fn call(&self, reference: &str, input: Value) -> Answer {
        self.try_call(reference, input)
            .unwrap_or_else(|error| panic!("{reference}: no answer: {error}"))
    }

    /// Calls an action; an error means that there was no answer.
    pub fn try_call(&self, reference: &str, input: Value) -> io::Result<Answer> {
        self.send(
            "POST",
            &format!("/v1/call/{reference}"),
            Some(input.to_string()),
        )
    }

    /// A GET.
    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.try_get(path)
            .unwrap_or_else(|error| panic!("GET {path}: no answer: {error}"))
    }

    /// A GET; an error means that there was no answer.
    pub fn try_get(&self, path: &str) -> io::Result<Answer> {
        self.send("GET", path, None)
    }

    /// A POST of JSON.
    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, Some(body.to_string()))
            .unwrap_or_else(|error| panic!("POST {path}: no answer: {error}"))
    }

    /// Any request.
    pub fn send(&self, method: &str, path: &str, body: Option<String>) -> io::Result<Answer> {
        runtime().block_on(async { answer(self.open(method, path, body).await?).await })
    }

    /// Sends a request and answers its open response, for streams. To be called in a runtime.
    pub async fn open(
        &self,
        method: &str,
        path: &str,
        body: Option<String>,
    ) -> io::Result<Response<Incoming>> {
        let request = self.request(method, path, body)?;
        match &self.place {
            Place::Unix(path) => {
                exchange(tokio::net::UnixStream::from_std(connect(path)?)?, request).await
            }
            Place::Tcp(address) => {
                exchange(tokio::net::TcpStream::connect(address).await?, request).await
            }
        }
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<String>,
    ) -> io::Result<Request<Full<Bytes>>> {
        let host = match &self.place {
            Place::Unix(_) => "weft".to_owned(),
            Place::Tcp(address) => address.clone(),
        };
        let mut request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).map_err(io::Error::other)?)
            .uri(path);
        if !self.headers.iter().any(|(name, _)| name == "host") {
            request = request.header("host", host);
        }
        if body.is_some() && !self.headers.iter().any(|(name, _)| name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(io::Error::other)
    }

    /// Opens an event stream and hands each event to `on` until it says to stop (`false`) or the stream ends.
    ///
    /// # Errors
    /// When there was no answer, or a refusal.
    pub fn stream(&self, path: &str, mut on: impl FnMut(SseEvent) -> bool) -> io::Result<()> {
        runtime().block_on(async {
            let response = self.open("GET", path, None).await?;
            if !response.status().is_success() {
                return Err(io::Error::other(format!("refused: {}", response.status())));
            }
            let mut body = response.into_body();
            let mut buffer = String::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(io::Error::other)?;
                let Some(data) = frame.data_ref() else {
                    continue;
                };
                buffer.push_str(&String::from_utf8_lossy(data));
                while let Some(end) = buffer.find("\n\n") {
                    let block: String = buffer.drain(..end + 2).collect();
                    if !on(SseEvent::parse(&block)) {
                        return Ok(());
                    }
                }
            }
            Ok(())
        })
    }
}

/// One block of an event stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// `event:`, empty unless named.
    pub name: String,
    /// `id:`, empty where there is none.
    pub id: String,
    /// `data:`, its lines joined.
    pub data: String,
}

impl SseEvent {
    fn parse(block: &str) -> Self {
        let mut event = SseEvent::default();
        for line in block.lines() {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut event.name),
                "id" => value.clone_into(&mut event.id),
                "data" => {
                    if !event.data.is_empty() {
                        event.data.push('\n');
                    }
                    event.data.push_str(value);
                }
                _ => {}
            }
        }
        event
    }

    /// Its data as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or(Value::Null)
    }
}

/// An answer taken apart by hand, for requests that no client would send.
#[derive(Debug, Clone)]
pub struct Raw {
    /// The status; 0 where the node said nothing before it closed.
    pub status: u16,
    /// Everything before the body, names in lower case.
    pub head: String,
    /// The body as text.
    pub body: String,
}

impl Raw {
    /// The slug of a refusal.
    pub fn slug(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or(Value::Null);
        body["type"]
            .as_str()
            .unwrap_or_default()
            .trim_start_matches("urn:weft:problem:")
            .to_owned()
    }
}

impl Client {
    /// Opens a bare connection.
    #[track_caller]
    pub fn bare(&self) -> Box<dyn Bare> {
        let opened: io::Result<Box<dyn Bare>> = match &self.place {
            Place::Unix(path) => connect(path).and_then(|stream| {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(RAW_PATIENCE))?;
                Ok(Box::new(stream) as Box<dyn Bare>)
            }),
            Place::Tcp(address) => std::net::TcpStream::connect(address).and_then(|stream| {
                stream.set_read_timeout(Some(RAW_PATIENCE))?;
                Ok(Box::new(stream) as Box<dyn Bare>)
            }),
        };
        opened.unwrap_or_else(|error| panic!("no connection to {:?}: {error}", self.place))
    }

    /// Sends these bytes and reads until the node closes; the request should ask for that with `Connection: close`.
    #[track_caller]
    pub fn raw(&self, request: &[u8]) -> Raw {
        let mut stream = self.bare();
        // The node may refuse and close before it has all.
        let _ = stream.write_all(request).and_then(|()| stream.flush());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0);
        Raw {
            status,
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    /// A connection that is kept for many requests. To be used in a runtime.
    pub async fn keep(&self) -> io::Result<Kept> {
        let sender = match &self.place {
            Place::Unix(path) => {
                handshake(tokio::net::UnixStream::from_std(connect(path)?)?).await?
            }
            Place::Tcp(address) => {
                handshake(tokio::net::TcpStream::connect(address).await?).await?
            }
        };
        Ok(Kept {
            client: self.clone(),
            sender,
        })
    }
}

/// A bare connection.
pub trait Bare: io::Read + io::Write + Send {}
impl<S: io::Read + io::Write + Send> Bare for S {}

/// How long a bare connection waits for a byte: longer than any deadline of the node under test.
const RAW_PATIENCE: std::time::Duration = std::time::Duration::from_mins(1);

/// A connection that is kept.
pub struct Kept {
    client: Client,
    sender: SendRequest<Full<Bytes>>,
}

impl Kept {
    /// Sends one request and reads its answer.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: Option<String>,
    ) -> io::Result<Answer> {
        let request = self.client.request(method, path, body)?;
        self.sender.ready().await.map_err(io::Error::other)?;
        answer(
            self.sender
                .send_request(request)
                .await
                .map_err(io::Error::other)?,
        )
        .await
    }

    /// The same with a bearer token of this request alone.
    pub async fn post_as(&mut self, token: &str, path: &str, body: &Value) -> io::Result<Answer> {
        let request =
            self.client
                .clone()
                .bearer(token)
                .request("POST", path, Some(body.to_string()))?;
        self.sender.ready().await.map_err(io::Error::other)?;
        answer(
            self.sender
                .send_request(request)
                .await
                .map_err(io::Error::other)?,
        )
        .await
    }
}

/// Connects however long the path is.
fn connect(path: &Path) -> io::Result<std::os::unix::net::UnixStream> {
    use std::os::fd::AsRawFd;
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let directory = rustix::fs::open(
        folder,
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    let stream = std::os::unix::net::UnixStream::connect(format!(
        "/proc/self/fd/{}/node.sock",
        directory.as_raw_fd()
    ))?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

async fn answer(response: Response<Incoming>) -> io::Result<Answer> {
    let status = response.status().as_u16();
    let headers = response
        .headers()
        .iter()
        .map(|(name, value)| {
            (
                name.as_str().to_owned(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect();
    let bytes = response
        .into_body()
        .collect()
        .await
        .map_err(io::Error::other)?
        .to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Answer {
        status,
        headers,
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        text,
    })
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> io::Result<Response<Incoming>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    handshake(stream)
        .await?
        .send_request(request)
        .await
        .map_err(io::Error::other)
}

async fn handshake<S>(stream: S) -> io::Result<SendRequest<Full<Bytes>>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}
