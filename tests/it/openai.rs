//! What does a server that speaks OpenAI's completions look like to a client? A fake one on loopback whose speed and faults are told it.
//!
//! A word is a token, and every prompt costs three more, as a template would. A prompt of n tokens takes `prefill` + n * `per_token`; prompts are
//! prefilled one after another. A decode step takes `step` + `per_stream` for each stream that decodes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Tokens of the template.
pub const OVERHEAD: usize = 3;
/// The only model.
pub const MODEL: &str = "tiny/model";

/// How the server behaves. What is not said is as it should be.
#[derive(Clone, Debug)]
pub struct Manners {
    /// Every prompt.
    pub prefill: Duration,
    /// Every token of a prompt.
    pub per_token: Duration,
    /// A decode step.
    pub step: Duration,
    /// What each stream adds to a step.
    pub per_stream: Duration,
    /// Streams that decode at once.
    pub places: usize,
    /// Whether counts are sent.
    pub usage: bool,
    /// Parameters that are refused.
    pub refused: &'static [&'static str],
    /// Only chats.
    pub chat_only: bool,
    /// Prompts longer than this are refused.
    pub longest: usize,
    /// Every completion is answered with this status.
    pub status: Option<u16>,
    /// Type of the answer.
    pub content_type: &'static str,
    /// Streams break off after so many pieces.
    pub breaks_after: Option<usize>,
    /// Streams end in an error after so many pieces.
    pub error_after: Option<usize>,
    /// Accepts and says nothing.
    pub hangs: bool,
    /// So many completions are answered, then the server is gone.
    pub dies_after: usize,
    /// Answers end after so many tokens, whatever was asked for.
    pub ends_after: usize,
    /// The page of `/metrics`.
    pub metrics: Option<String>,
    /// A key that requests must show.
    pub key: Option<&'static str>,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            prefill: Duration::from_millis(2),
            per_token: Duration::from_micros(50),
            step: Duration::from_millis(4),
            per_stream: Duration::from_micros(500),
            places: usize::MAX >> 4,
            usage: true,
            refused: &[],
            chat_only: false,
            longest: usize::MAX,
            status: None,
            content_type: "text/event-stream; charset=utf-8",
            breaks_after: None,
            error_after: None,
            hangs: false,
            dies_after: usize::MAX,
            ends_after: usize::MAX,
            metrics: None,
            key: None,
        }
    }
}

/// The server.
#[derive(Debug)]
pub struct OpenAi {
    /// Where it listens.
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    manners: Mutex<Manners>,
    prefill: Semaphore,
    places: Semaphore,
    decoding: AtomicUsize,
    most_decoding: AtomicUsize,
    completions: AtomicUsize,
    is_dead: AtomicBool,
    bodies: Mutex<Vec<Value>>,
}

impl OpenAi {
    pub async fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            prefill: Semaphore::new(1),
            places: Semaphore::new(manners.places),
            manners: Mutex::new(manners),
            decoding: AtomicUsize::new(0),
            most_decoding: AtomicUsize::new(0),
            completions: AtomicUsize::new(0),
            is_dead: AtomicBool::new(false),
            bodies: Mutex::default(),
        });
        let task = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self { addr, shared, task }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn change(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut self.shared.manners.lock().unwrap());
        self.shared.is_dead.store(false, Ordering::SeqCst);
    }

    pub fn completions(&self) -> usize {
        self.shared.completions.load(Ordering::SeqCst)
    }

    /// Most streams that decoded at once.
    pub fn most_decoding(&self) -> usize {
        self.shared.most_decoding.load(Ordering::SeqCst)
    }

    /// What was asked so far.
    pub fn bodies(&self) -> Vec<Value> {
        self.shared.bodies.lock().unwrap().clone()
    }
}

impl Drop for OpenAi {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        if shared.is_dead.load(Ordering::SeqCst) {
            connections.shutdown().await;
            continue;
        }
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let _gone = connection(stream, &shared).await;
        });
    }
}

async fn connection(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    loop {
        let (head, body) = request(&mut stream).await?;
        if shared.is_dead.load(Ordering::SeqCst) {
            return Ok(());
        }
        let manners = shared.manners.lock().unwrap().clone();
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let keyed = manners.key.is_none_or(|key| head.contains(&format!("Bearer {key}\r\n")));
        match path.as_str() {
            _ if !keyed => whole(&mut stream, 401, r#"{"error":{"message":"no key"}}"#).await?,
            "/v1/models" => whole(&mut stream, 200, &json!({ "data": [{ "id": MODEL, "owned_by": "tests" }] }).to_string()).await?,
            "/version" => whole(&mut stream, 200, r#"{"version":"1.2.3"}"#).await?,
            "/metrics" if manners.metrics.is_some() => whole(&mut stream, 200, &manners.metrics.unwrap_or_default()).await?,
            "/v1/completions" if !manners.chat_only => completion(&mut stream, &body, &manners, shared).await?,
            "/v1/chat/completions" => completion(&mut stream, &body, &manners, shared).await?,
            _ => whole(&mut stream, 404, r#"{"detail":"Not Found"}"#).await?,
        }
    }
}

async fn request(stream: &mut TcpStream) -> std::io::Result<(String, Value)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    Ok((head.replace("authorization:", "Authorization:"), serde_json::from_slice(&body).unwrap_or_default()))
}

async fn whole(stream: &mut TcpStream, status: u16, body: &str) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 {status} Fake\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes()).await
}

/// Streams that decode, less this one when it ends however it does.
struct Decoding<'a>(&'a AtomicUsize);

impl Drop for Decoding<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn completion(stream: &mut TcpStream, body: &Value, manners: &Manners, shared: &Shared) -> std::io::Result<()> {
    shared.bodies.lock().unwrap().push(body.clone());
    if shared.completions.fetch_add(1, Ordering::SeqCst) >= manners.dies_after {
        shared.is_dead.store(true, Ordering::SeqCst);
        return Err(std::io::ErrorKind::BrokenPipe.into());
    }
    if manners.hangs {
        std::future::pending::<()>().await;
    }
    if let Some(status) = manners.status {
        return whole(stream, status, r#"{"error":{"message":"told to fail"}}"#).await;
    }
    if let Some(refused) = manners.refused.iter().find(|name| body.get(**name).is_some()) {
        return whole(stream, 400, &json!({ "error": { "message": format!("unrecognized argument: {refused}") } }).to_string()).await;
    }
    let chat = body.pointer("/messages/0/content");
    let prompt = chat.or(body.get("prompt")).and_then(Value::as_str).unwrap_or_default();
    let words: Vec<&str> = prompt.split_whitespace().collect();
    let prompt_tokens = words.len() + OVERHEAD;
    if prompt_tokens > manners.longest {
        return whole(stream, 400, r#"{"error":{"message":"the prompt exceeds the context length"}}"#).await;
    }
    let wanted = body.get("max_tokens").and_then(Value::as_u64).unwrap_or(1) as usize;
    let _place = shared.places.acquire().await.unwrap();
    {
        let _turn = shared.prefill.acquire().await.unwrap();
        sleep(manners.prefill + manners.per_token * u32::try_from(prompt_tokens).unwrap()).await;
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {}\r\nTransfer-Encoding: chunked\r\n\r\n", manners.content_type);
    stream.write_all(head.as_bytes()).await?;
    shared.decoding.fetch_add(1, Ordering::SeqCst);
    let _decoding = Decoding(&shared.decoding);
    let tokens = wanted.min(manners.ends_after);
    for token in 0..tokens {
        if token > 0 {
            let now = shared.decoding.load(Ordering::SeqCst);
            shared.most_decoding.fetch_max(now, Ordering::SeqCst);
            sleep(manners.step + manners.per_stream * u32::try_from(now).unwrap()).await;
        }
        if manners.breaks_after == Some(token) {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        if manners.error_after == Some(token) {
            event(stream, r#"{"error":{"message":"out of memory"}}"#).await?;
            return stream.write_all(b"0\r\n\r\n").await;
        }
        let piece = match chat {
            Some(_) => json!({ "choices": [{ "delta": { "content": " ä" } }] }),
            None => json!({ "choices": [{ "text": " ä" }] }),
        };
        event(stream, &piece.to_string()).await?;
    }
    if manners.usage && body.pointer("/stream_options/include_usage") == Some(&Value::Bool(true)) {
        let usage = json!({ "choices": [], "usage": { "prompt_tokens": prompt_tokens, "completion_tokens": tokens } });
        event(stream, &usage.to_string()).await?;
    }
    event(stream, "[DONE]").await?;
    stream.write_all(b"0\r\n\r\n").await
}

/// One event in a chunk of its own.
async fn event(stream: &mut TcpStream, data: &str) -> std::io::Result<()> {
    let text = format!("data: {data}\n\n");
    stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await
}
