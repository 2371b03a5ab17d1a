//! Does the status page work in a real browser? The real binary before fake routers, and Chromium in both themes and at a phone's width.
//! Needs `chromium` in PATH: `tests/run` installs it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::read::ZlibDecoder;
use serde_json::Value;

use crate::service::{Exporter, HALF_LOAD, Router, Site};
use crate::status_page::{ATTACK, assert_equal};

const DESKTOP: &str = "1280,2000";
const PHONE: &str = "500,2000";

fn chromium() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("chromium")).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("chromium is not in PATH: install Debian's package `chromium`, as tests/run does"))
}

/// Loads a page and gives what Chromium writes to standard output; the page must not make it complain.
fn load(url: &str, window: &str, dark: bool, argument: &str) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(chromium())
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=1000"])
        .args(["--enable-logging=stderr", "--v=0", "--timeout=20000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={window}"))
        .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
        .args([argument, url])
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    assert!(!log.contains(":CONSOLE"), "{log}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Width, and colour of the first pixel. Without neighbours above and to the left it is the same with every filter.
fn first_pixel(png: &Path) -> (u32, [u8; 3]) {
    let bytes = std::fs::read(png).unwrap();
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let (width, mut packed, mut at) = (number(16), Vec::new(), 8);
    while at < bytes.len() {
        let length = number(at) as usize;
        if &bytes[at + 4..at + 8] == b"IDAT" {
            packed.extend(&bytes[at + 8..at + 8 + length]);
        }
        at += length + 12;
    }
    let mut first = [0; 4];
    ZlibDecoder::new(&packed[..]).read_exact(&mut first).unwrap();
    (width, [first[1], first[2], first[3]])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_sound_in_both_themes_and_on_a_phone_and_a_hostile_name_is_harmless() {
    let site = Site::alone();
    let routers = [Router::start(ATTACK, HALF_LOAD).await, Router::start(ATTACK, HALF_LOAD).await];
    let urls: Vec<String> = routers.iter().map(|router| format!("\"{}\"", router.server.url())).collect();
    let config = format!(
        "server: {{ listen: \"127.0.0.1:0\" }}\nscrape: {{ interval: 200ms, timeout: 200ms }}\nmodels:\n  - name: \"{ATTACK}\"\n    \
         slo: {{ ttft: 500ms, itl: 50ms }}\n    planner: {{ preset: infera, profile: profile.json, adjustment_interval: 1s }}\n    \
         traffic: {{ targets: {{ static: [{}] }} }}\n    pools:\n      - {{ name: p, role: prefill, max_replicas: 16 }}\n      \
         - {{ name: d, role: decode, max_replicas: 16 }}\n",
        urls.join(", ")
    );
    let exporter = Exporter::start(&site.write("config.yaml", &config));
    crate::service::until("recommendations", || {
        let page = exporter.metrics();
        ["p", "d"].iter().all(|pool| page.recommended(pool) == Some(3.0) && page.held(pool) == Some(0.0)).then_some(())
    });
    let url = format!("http://{}/", exporter.addr);
    let plans: Value = serde_json::from_str(&exporter.ask("GET /api/v1/plans").2).unwrap();
    for (window, width) in [(DESKTOP, 1280), (PHONE, 500)] {
        let dom = load(&url, window, false, "--dump-dom");
        assert_equal(&dom, &plans);
        assert_eq!(dom.matches("<script").count(), 1, "our own: {dom}");
        assert!(dom.contains("&lt;script&gt;alert(1)&lt;/script&gt;</h2>"), "{dom}");
        for (dark, paper) in [(false, [0xff, 0xff, 0xff]), (true, [0x14, 0x17, 0x1a])] {
            let picture = site.path("page.png");
            load(&url, window, dark, &format!("--screenshot={}", picture.display()));
            assert_eq!(first_pixel(&picture), (width, paper));
        }
    }
}
