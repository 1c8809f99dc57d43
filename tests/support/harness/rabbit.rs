//! A `RabbitMQ` broker for tests.

use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use crate::builder::find_program;
use crate::certificates::Certificates;
use crate::child::Guarded;
use crate::dir::TestDir;
use crate::poll::until;
use crate::port::Port;
use crate::server::{Description, Ready, started};
use crate::{Server, StartError};

/// The programs of Debian's package. Those in `PATH` change to the user of the service.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";

/// The only user of the broker.
const USER: &str = "idem";

/// Serves evaluations within the broker, one in each connection: `rabbitmqctl` takes a second of the processor each time.
const EVALUATOR: &str = r#"spawn(fun() ->
    Options = [binary, {ip, {127, 0, 0, 1}}, {packet, line}, {buffer, 65536}, {active, false}, {reuseaddr, true}],
    {ok, Listener} = gen_tcp:listen(PORT, Options),
    Serve = fun Next() ->
        {ok, Client} = gen_tcp:accept(Listener),
        {ok, Line} = gen_tcp:recv(Client, 0),
        Reply = try
            {ok, Tokens, _} = erl_scan:string(binary_to_list(Line)),
            {ok, Expressions} = erl_parse:parse_exprs(Tokens),
            {value, Value, _} = erl_eval:exprs(Expressions, []),
            io_lib:format("ok ~0p", [Value])
        catch
            _:Reason -> io_lib:format("failed ~0p", [Reason])
        end,
        gen_tcp:send(Client, Reply),
        gen_tcp:close(Client),
        Next()
    end,
    Serve()
end).
"#;

/// A `RabbitMQ` broker on a loopback port, stopped on drop.
///
/// It has a node name, ports (one of them for TLS), data and a port mapper (`epmd`) of its own. Its data survives
/// [`kill`](Server::kill) and [`restart`](Server::restart).
#[derive(Debug)]
pub struct RabbitServer {
    // Dropped in this order: first the broker, then its port mapper, then their ports.
    server: Server,
    _mapper: Guarded,
    _reserved: [Port; 2],
    evaluator: Port,
    password: String,
    tls_port: Port,
    certificates: Certificates,
}

impl RabbitServer {
    /// Starts a broker without queues, and waits until it is complete.
    pub fn start() -> Self {
        started(|| {
            let mapper = find_program(Path::new("epmd")).ok_or_else(no_server)?;
            find_program(&program("rabbitmq-server")).ok_or_else(no_server)?;
            Self::launch(&mapper)
        })
    }

    fn launch(mapper: &Path) -> Result<Self, StartError> {
        let (port, distribution, mapper_port) = (Port::take()?, Port::take()?, Port::take()?);
        let evaluator = Port::take()?;
        let dir = TestDir::new("rabbitmq")?;
        let password = format!("secret-{}-{}", process::id(), port.number());
        let (tls_port, certificates) = (Port::take()?, Certificates::new());
        // The settings that it returns are those of Redis for the same files.
        certificates.write(dir.path())?;
        let file = |name: &str, content: &str| fs::write(dir.path().join(name), content);
        file(
            "rabbitmq.conf",
            &format!(
                "listeners.tcp.1 = 127.0.0.1:{}\nlisteners.ssl.1 = 127.0.0.1:{}\n\
                 ssl_options.cacertfile = {path}/ca.pem\nssl_options.certfile = {path}/server.pem\n\
                 ssl_options.keyfile = {path}/server.key\nssl_options.verify = verify_peer\n\
                 ssl_options.fail_if_no_peer_cert = false\n\
                 default_user = {USER}\ndefault_pass = {password}\n\
                 disk_free_limit.absolute = 1MB\nvm_memory_high_watermark.absolute = 512MB\n\
                 log.console = true\nlog.file = false\n",
                port.number(),
                tls_port.number(),
                path = dir.path().display(),
            ),
        )?;
        // The counts of a quorum queue are of its last tick.
        file(
            "advanced.config",
            "[{rabbit, [{quorum_tick_interval, 200}]}].\n",
        )?;
        file("enabled_plugins", "[].\n")?;
        let number = evaluator.number().to_string();
        file("evaluator.erl", &EVALUATOR.replace("PORT", &number))?;
        // The broker would start a port mapper that outlives it.
        let args = ["-port", &mapper_port.number().to_string()].map(OsString::from);
        let mapper = Guarded::spawn(mapper, &args, None, "", |command| {
            command
                .env("ERL_EPMD_ADDRESS", "127.0.0.1")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
        })?;
        let ready = Ready::Says("Server startup complete");
        let mut description =
            Description::new("RabbitMQ", program("rabbitmq-server"), Vec::new(), ready);
        let (place, ports) = (
            dir.path().to_owned(),
            [&port, &distribution, &mapper_port].map(Port::number),
        );
        description.set_up = Box::new(move |command| {
            environment(command, &place, ports);
            Ok(())
        });
        Ok(Self {
            server: Server::start(description, port, dir)?,
            _mapper: mapper,
            _reserved: [distribution, mapper_port],
            evaluator,
            password,
            tls_port,
            certificates,
        })
    }

    /// The URL of the broker for its user, who has every permission.
    pub fn url(&self) -> String {
        self.url_with(&self.password)
    }

    pub fn url_with(&self, password: &str) -> String {
        format!("amqp://{USER}:{password}@{}/%2f", self.addr())
    }

    /// The URL of the TLS port for its user.
    pub fn tls_url(&self) -> String {
        self.tls_url_with(&self.password)
    }

    /// The URL of the TLS port with another password.
    pub fn tls_url_with(&self, password: &str) -> String {
        let port = self.tls_port.number();
        format!("amqps://{USER}:{password}@127.0.0.1:{port}/%2f")
    }

    /// The authority of the broker's certificate, and the accepted client certificate.
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// The value of Erlang expressions within the broker.
    pub fn eval(&self, expressions: &str) -> String {
        let addr = (Ipv4Addr::LOCALHOST, self.evaluator.number());
        // It is started last.
        let mut evaluator = until("the evaluator", || TcpStream::connect(addr));
        let (sent, mut reply) = (expressions.replace('\n', " "), String::new());
        writeln!(evaluator, "{sent}").expect("the broker is up");
        let read = evaluator.read_to_string(&mut reply);
        read.expect("the broker is up");
        let value = reply.strip_prefix("ok ");
        value
            .unwrap_or_else(|| panic!("{sent}: {reply}"))
            .to_owned()
    }
}

is_a!(RabbitServer.server: Server);

/// The environment of the broker, in place of the service's files.
fn environment(command: &mut Command, dir: &Path, [port, distribution, mapper]: [u16; 3]) {
    let evaluator = dir.join("evaluator.erl");
    command
        // The place of its cookie.
        .env("HOME", dir)
        .env("ERL_EPMD_PORT", mapper.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODENAME", format!("idem-{port}@localhost"))
        .env("RABBITMQ_DIST_PORT", distribution.to_string())
        .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
        .env("RABBITMQ_CONFIG_FILE", dir.join("rabbitmq.conf"))
        .env("RABBITMQ_ADVANCED_CONFIG_FILE", dir.join("advanced.config"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", dir.join("enabled_plugins"))
        .env("RABBITMQ_GENERATED_CONFIG_DIR", dir)
        .env("RABBITMQ_MNESIA_BASE", dir.join("data"))
        .env("RABBITMQ_LOG_BASE", dir.join("log"))
        .env("RABBITMQ_LOGS", "-")
        .env("RABBITMQ_PID_FILE", dir.join("pid"))
        // Two schedulers, where the default is one for each core, which sleep when they have nothing to do.
        .env(
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
            format!(
                "-start_epmd false +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none \
                 -kernel inet_dist_use_interface {{127,0,0,1}} -eval file:eval(\"{}\").",
                evaluator.display()
            ),
        )
        // The script becomes the broker: its pid is that of the child.
        .env("RUNNING_UNDER_SYSTEMD", "true")
        .env_remove("NOTIFY_SOCKET");
}

fn program(name: &str) -> PathBuf {
    Path::new(PROGRAMS).join(name)
}

fn no_server() -> StartError {
    StartError::new(
        "no RabbitMQ; install it (Debian, Ubuntu: `apt-get install rabbitmq-server`): its programs \
         are looked for in /usr/lib/rabbitmq/bin, and `epmd` of Erlang in PATH"
            .to_owned(),
    )
}
