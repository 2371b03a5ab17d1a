//! What does a name server answer? A small one on loopback, with names that change while it runs.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;

const A: u16 = 1;
const AAAA: u16 = 28;
const SRV: u16 = 33;

/// What a name has.
#[derive(Clone, Debug, Default)]
pub struct Records {
    pub addresses: Vec<IpAddr>,
    /// Host and port.
    pub services: Vec<(String, u16)>,
}

/// A name server that runs until it is dropped.
#[derive(Debug)]
pub struct NameServer {
    pub addr: SocketAddr,
    names: Arc<Mutex<BTreeMap<String, Records>>>,
    /// Whether questions are answered at all.
    silent: Arc<Mutex<bool>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl NameServer {
    pub async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let addr = socket.local_addr().unwrap();
        let (names, silent) = (Arc::<Mutex<BTreeMap<String, Records>>>::default(), Arc::<Mutex<bool>>::default());
        let (table, mute) = (Arc::clone(&names), Arc::clone(&silent));
        let task = tokio::spawn(async move {
            let mut question = [0; 4096];
            loop {
                let Ok((length, from)) = socket.recv_from(&mut question).await else { continue };
                if !*mute.lock().unwrap() {
                    let reply = answer(&question[..length], &table.lock().unwrap());
                    let _gone = socket.send_to(&reply, from).await;
                }
            }
        });
        Self { addr, names, silent, task }
    }

    /// The name has these addresses from now on.
    pub fn set_addresses(&self, name: &str, addresses: impl IntoIterator<Item = IpAddr>) {
        let records = Records { addresses: addresses.into_iter().collect(), ..Records::default() };
        self.names.lock().unwrap().insert(name.to_owned(), records);
    }

    /// The name has these SRV records from now on.
    pub fn set_services(&self, name: &str, services: &[(&str, u16)]) {
        let services = services.iter().map(|(host, port)| ((*host).to_owned(), *port)).collect();
        self.names.lock().unwrap().insert(name.to_owned(), Records { services, ..Records::default() });
    }

    /// The name is not there any more.
    pub fn forget(&self, name: &str) {
        self.names.lock().unwrap().remove(name);
    }

    pub fn set_silent(&self, silent: bool) {
        *self.silent.lock().unwrap() = silent;
    }
}

/// So many addresses of this machine: 127.0.1.1, 127.0.1.2 and so on.
pub fn loopback(count: u8) -> impl Iterator<Item = IpAddr> {
    (1..=count).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 1, last)))
}

/// RFC 1035, section 4: one question, all its records, no compression but for the name of each record.
fn answer(question: &[u8], names: &BTreeMap<String, Records>) -> Vec<u8> {
    let (mut at, mut name) = (12, Vec::new());
    while question[at] != 0 {
        let length = usize::from(question[at]);
        name.push(String::from_utf8_lossy(&question[at + 1..at + 1 + length]).to_ascii_lowercase());
        at += 1 + length;
    }
    let kind = u16::from_be_bytes([question[at + 1], question[at + 2]]);
    let asked = &question[12..at + 5];
    let records = names.get(&name.join("."));
    let datas: Vec<Vec<u8>> = records.map_or_else(Vec::new, |records| match kind {
        A | AAAA => {
            let bytes = |address: &IpAddr| match address {
                IpAddr::V4(address) => (A, address.octets().to_vec()),
                IpAddr::V6(address) => (AAAA, address.octets().to_vec()),
            };
            records.addresses.iter().map(bytes).filter(|(family, _)| *family == kind).map(|(_, bytes)| bytes).collect()
        }
        SRV => records.services.iter().map(|(host, port)| service(host, *port)).collect(),
        _ => Vec::new(),
    });
    // A response, authoritative, recursion available; name error where the name is not there.
    let mut reply = question[..2].to_vec();
    reply.extend([0x85, if records.is_some() { 0x80 } else { 0x83 }, 0, 1]);
    reply.extend((datas.len() as u16).to_be_bytes());
    reply.extend([0; 4]);
    reply.extend(asked);
    for data in datas {
        reply.extend([0xc0, 12]);
        reply.extend(kind.to_be_bytes());
        // Class IN, five seconds.
        reply.extend([0, 1, 0, 0, 0, 5]);
        reply.extend((data.len() as u16).to_be_bytes());
        reply.extend(data);
    }
    reply
}

fn service(host: &str, port: u16) -> Vec<u8> {
    let mut data = vec![0, 0, 0, 0];
    data.extend(port.to_be_bytes());
    for label in host.split('.') {
        data.push(label.len() as u8);
        data.extend(label.bytes());
    }
    data.push(0);
    data
}
