//! A browser that a test drives: Chromium by its chromedriver (W3C WebDriver, JSON over HTTP).

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use resyncd::clock;
use serde_json::{Value, json};

use super::{LIMIT, client};

/// A running chromedriver with one session. Both end when it is dropped.
pub(crate) struct Browser {
    driver: Child,
    /// The address of the driver.
    address: String,
    session: String,
}

/// Starts the driver, and returns it with its port; `None`: it has ended at once.
fn start_driver(chromedriver: &str) -> Option<(Child, String)> {
    let mut driver = Command::new(chromedriver)
        .arg("--port=0")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let port = lines.find_map(|line| {
        let line = line.unwrap();
        let (_, port) = line.split_once("started successfully on port ")?;
        Some(port.trim_end_matches('.').to_owned())
    });
    let Some(port) = port else {
        // Its output has ended, and so has it.
        driver.wait().unwrap();
        return None;
    };
    // What else it writes must not block it.
    std::thread::spawn(move || lines.for_each(drop));
    Some((driver, port))
}

impl Browser {
    /// Starts the program at that path, and a browser without a window.
    pub(crate) async fn start(chromedriver: &str) -> Self {
        // It takes a free port of IPv4, and ends if another process has the same one of IPv6.
        let (driver, port) = (0..20)
            .find_map(|_| start_driver(chromedriver))
            .expect("chromedriver starts");
        let mut browser = Self {
            driver,
            address: format!("127.0.0.1:{port}"),
            session: String::new(),
        };
        // It runs in CI as root, in a container.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--force-device-scale-factor=1",
            "--hide-scrollbars",
            "--window-size=1200,1000",
        ];
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let session = browser.send("POST", "/session", capabilities).await;
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> Value {
        match self.try_send(method, path, body).await {
            Ok(value) => value,
            Err(error) => panic!("{method} {path}: {error}"),
        }
    }

    /// The value of the answer, or that of an error.
    async fn try_send(&self, method: &str, path: &str, body: Value) -> Result<Value, Value> {
        let url = format!("http://{}{path}", self.address);
        let request = client().request(method.parse().unwrap(), url);
        let request = match method {
            "POST" => request.body(body.to_string()),
            _ => request,
        };
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let mut body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        if status.is_success() {
            Ok(body["value"].take())
        } else {
            Err(body["value"].take())
        }
    }

    async fn command(&self, name: &str, parameters: Value) -> Value {
        let path = format!("/session/{}/{name}", self.session);
        self.send("POST", &path, parameters).await
    }

    /// Opens a page, and waits until it is loaded.
    pub(crate) async fn open(&self, url: &str) {
        self.command("url", json!({ "url": url })).await;
    }

    /// The value of a script, such as `return document.title`.
    pub(crate) async fn run(&self, script: &str) -> Value {
        let parameters = json!({ "script": script, "args": [] });
        self.command("execute/sync", parameters).await
    }

    /// Waits until the value of an expression is true.
    pub(crate) async fn until(&self, condition: &str) {
        let script = format!("return Boolean({condition})");
        let deadline = clock::now().mono + LIMIT;
        while self.run(&script).await != true {
            if clock::now().mono >= deadline {
                let text = self.run("return document.body.innerText").await;
                panic!("{condition}: not within {LIMIT:?}: {text}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Clicks on the first element that a selector selects, as a person does. One that is replaced just then is looked for again.
    pub(crate) async fn click(&self, selector: &str) {
        let deadline = clock::now().mono + LIMIT;
        loop {
            let parameters = json!({ "using": "css selector", "value": selector });
            let found = self.command("element", parameters).await;
            let (_, id) = found.as_object().unwrap().iter().next().unwrap();
            let path = format!(
                "/session/{}/element/{}/click",
                self.session,
                id.as_str().unwrap()
            );
            match self.try_send("POST", &path, json!({})).await {
                Ok(_) => return,
                Err(error) if error["error"] == "stale element reference" => {
                    assert!(clock::now().mono < deadline, "{selector}: {error}");
                }
                Err(error) => panic!("{selector}: {error}"),
            }
        }
    }

    /// Presses a key.
    pub(crate) async fn press(&self, key: &str) {
        let actions = ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key }));
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        let parameters = json!({ "actions": [keyboard] });
        self.command("actions", parameters).await;
    }

    /// A command of the Chrome DevTools protocol.
    pub(crate) async fn devtools(&self, name: &str, parameters: Value) -> Value {
        let command = json!({ "cmd": name, "params": parameters });
        self.command("goog/cdp/execute", command).await
    }

    /// What the console has since the last call, without what is only information.
    pub(crate) async fn console(&self) -> Vec<String> {
        let entries = self.command("se/log", json!({ "type": "browser" })).await;
        let entries = entries.as_array().unwrap().iter();
        let complaints =
            entries.filter(|it| !matches!(it["level"].as_str(), Some("INFO" | "DEBUG")));
        complaints.map(|it| it["message"].to_string()).collect()
    }

    /// A picture of what the window shows, as PNG.
    pub(crate) async fn screenshot(&self) -> Vec<u8> {
        let path = format!("/session/{}/screenshot", self.session);
        let picture = self.send("GET", &path, Value::Null).await;
        STANDARD.decode(picture.as_str().unwrap()).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser. A test that panics has no runtime to wait with.
        if let Ok(mut driver) = TcpStream::connect(&self.address) {
            let (session, address) = (&self.session, &self.address);
            let request = format!(
                "DELETE /session/{session} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
            );
            let _ = driver.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = driver.write_all(request.as_bytes());
            let _ = std::io::copy(&mut driver, &mut std::io::sink());
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
