/**
 * One carried connection, from the guest's stream to the target.
 *
 * It decides by name and port, resolves once, connects to a pinned address, looks at the first bytes, and
 * then either copies or hands the stream to a proxy that sees every request. It ends once: by itself, by a
 * limit, or because the policy has changed.
 */
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { lend } from '../../lib/lent-memory.ts';
import type { OpenAttempt } from '../attempts.ts';
import { watchPlaceholders } from '../broker/watch-placeholders.ts';
import type { CarriedStream } from '../egress.ts';
import { checkAuthority, headerMap } from '../http/check-authority.ts';
import { denialPage, remedyOf } from '../http/denial-page.ts';
import type { Exchange, HttpConnection, RequestFacts } from '../http/exchange.ts';
import {
  admitAddress,
  decideAddress,
  decideName,
  decideRequest,
  type Decision,
  deniedName,
} from '../policy/decide.ts';
import type { RequestHead } from '../policy/http-conditions.ts';
import type { OpenConnection, SandboxEgress } from '../sandbox-egress.ts';
import type { SshPut } from '../ssh/ssh-proxy.ts';
import { protocolOf, readFirstBytes, requestWatch } from '../wire/first-bytes.ts';
import { askApproval } from './ask-approval.ts';
import { admittedAddresses, type ConnectionTarget, resolveTarget } from './addresses.ts';
import { Meter } from './budget.ts';
import { checkServerName } from './check-server-name.ts';
import { copyBoth } from './copy-both.ts';
import { Denial } from './denial.ts';
import { dial } from './dial.ts';
import { endAttempt } from './end-attempt.ts';
import { sshConnection } from './ssh-connection.ts';
import type { Engine } from './engine.ts';
import { Holding } from './holding.ts';
import { refusalOf } from './refusal-of.ts';
import { suggestedRule } from './suggested-rule.ts';

/** How long bytes that may become a request are held back: programs may type letter by letter. */
const PATIENCE_MS = 300;
/** Requests of one connection that wait for answers. HTTP/2 has 100, and HTTP/1 queues its own. */
const MAX_REQUESTS = 128;

export class Connection implements OpenConnection {
  readonly #engine: Engine;
  readonly #sandbox: SandboxEgress;
  readonly #target: ConnectionTarget;
  readonly #stream: CarriedStream;
  readonly #began: number;
  readonly #upstream = new Set<Duplex>();
  /** Requests under way, which are decided again when the policy changes. */
  readonly #requests = new Set<{ head: RequestHead; end: (denial: Denial) => void }>();
  readonly #given = new AbortController();
  readonly #holding: Holding;
  #meter: Meter;
  #attempt: OpenAttempt | undefined;
  #addresses: readonly string[] | undefined;
  #pinned: string | undefined;
  #rules: Decision['rules'] = [];
  #mode: 'deciding' | 'raw' | 'http' = 'deciding';
  #approved = false;
  #accepted = false;
  /** Why it is refused, while that is being told. */
  #refused: Denial | undefined;
  #ended = false;
  #lastActive: number;

  constructor(engine: Engine, sandbox: SandboxEgress, target: ConnectionTarget, stream: CarriedStream) {
    this.#engine = engine;
    this.#sandbox = sandbox;
    this.#target = target;
    this.#stream = stream;
    this.#began = this.#lastActive = engine.clock.steady();
    this.#meter = new Meter([sandbox.budget]);
    this.#holding = new Holding(sandbox.project, stream, (denial) => this.#end(denial));
    const { duplex } = stream;
    // A guest that goes away is an end like any other.
    duplex.on('error', () => {});
    duplex.once('close', () => this.#end(undefined));
  }

  /** Carries it until it is handed over or ends. Never rejects. */
  async carry(): Promise<void> {
    const { name = null, address = null, port, process = null } = this.#target;
    this.#attempt = this.#sandbox.attempts.begin(
      { name, address, port, protocol: 'tcp', process },
      this.#meter.bytes,
    );
    try {
      this.#holding.open();
    } catch (error) {
      // An explanation would be one more connection.
      return this.#end(error as Denial);
    }
    this.#sandbox.connections.add(this);
    try {
      await this.#decideAndCarry();
    } catch (error) {
      const denial = Denial.from(error, 'connect', 'The connection failed inside the server');
      if (denial.denied && (await this.#explain(denial))) return;
      this.#end(denial);
    }
  }

  async #decideAndCarry(): Promise<void> {
    this.#meter.open();
    let decision = this.#decide();
    if (decision.verdict === 'ask') {
      this.#approved = await this.#ask();
      if (this.#ended) return;
      decision = this.#decide();
      if (!this.#approved || decision.verdict === 'deny') throw refusalOf(this.#target, decision);
    } else if (decision.verdict === 'deny') throw refusalOf(this.#target, decision);
    this.#rules = decision.rules;
    this.#attempt!.update({ rule: decision.rule ?? null });
    this.#meter.close();
    this.#meter = new Meter(this.#sandbox.budgetsOf(decision.rules), this.#meter.bytes);
    this.#meter.open();
    // On port 80 requests are read as such, so that Host is what the policy was asked for.
    const ssh = decision.rules.flatMap(({ puts }) => puts).find((put) => put.as === 'ssh');
    if (ssh) await this.#takeSsh(ssh);
    else if (decision.inspect || this.#target.port === 80) await this.#inspect();
    else await this.#pass();
  }

  #decide(): Decision {
    const { name, address, port } = this.#target;
    return name === undefined
      ? decideAddress(this.#sandbox.policy, this.#engine.classify(address!), port)
      : decideName(this.#sandbox.policy, name, port);
  }

  #ask(): Promise<boolean> {
    const { ask, clock, timeouts } = this.#engine;
    if (!ask) return Promise.resolve(false);
    const { name = null, address = null, port, process = null } = this.#target;
    const rule = suggestedRule(this.#target);
    const question = { sandboxId: this.#sandbox.id, name, address, port, process, rule };
    return this.#sandbox.ask(rule, () => askApproval(ask, question, clock, timeouts.askMs));
  }

  /** Copies bytes. The client's first ones are looked at before they go out. */
  async #pass(): Promise<void> {
    const socket = await this.#dial();
    if (this.#ended) return;
    this.#accept();
    const { duplex } = this.#stream;
    const spoke = new AbortController();
    const onSpoke = () => spoke.abort();
    socket.once('readable', onSpoke);
    const first = await readFirstBytes(duplex, { signal: spoke.signal, patienceMs: PATIENCE_MS });
    socket.off('readable', onSpoke);
    if (this.#ended) return;
    if (first.kind === 'bad')
      throw new Denial('name_mismatch', 'The connection begins with something that cannot be read');
    if (first.kind === 'tls')
      checkServerName(this.#target, first.hello.serverName, (name) => this.#checkDenied(name));
    if (first.kind === 'http1' || first.kind === 'http2') {
      this.#hand(first.kind, socket);
      return;
    }
    this.#mode = 'raw';
    this.#attempt!.update({ protocol: protocolOf(first) });
    if (first.kind === 'other' && first.rest) {
      this.#meter.spend('out', first.rest.length);
      socket.write(first.rest);
    }
    this.#copyBoth(socket, first.kind === 'undecided' ? requestWatch() : undefined);
  }

  #copyBoth(socket: Socket, request: ((chunk: Buffer) => void) | undefined): void {
    const watch = watchPlaceholders(this.#engine, this.#sandbox.id);
    copyBoth(this.#stream.duplex, socket, {
      out: (chunk) => {
        request?.(chunk);
        watch?.scan(chunk);
        this.touch();
        return this.#meter.spend('out', chunk.length);
      },
      in: (chunk) => {
        // Nobody but the guest's connection has it from now on.
        lend(chunk);
        this.touch();
        this.#holding.arrived(chunk.length);
        return this.#meter.spend('in', chunk.length);
      },
      end: (denial) => this.#end(denial),
    });
  }

  /** Hands the stream to what reads requests. */
  async #inspect(): Promise<void> {
    this.#accept();
    const { duplex } = this.#stream;
    const first = await readFirstBytes(duplex, { timeoutMs: this.#engine.timeouts.firstBytesMs });
    if (this.#ended) return;
    if (first.kind === 'http1' || first.kind === 'http2') this.#hand(first.kind);
    else if (first.kind === 'tls') {
      checkServerName(this.#target, first.hello.serverName, (name) => this.#checkDenied(name));
      if (!this.#engine.tls || this.#target.name === undefined)
        throw new Denial(
          'tls',
          'The rule has conditions on requests, and this server does not terminate TLS',
        );
      this.#mode = 'http';
      await this.#engine.tls.take(duplex, this.#target.name, first.hello, this.#http(true), () =>
        this.#dial(),
      );
    } else if (first.kind === 'nothing') throw new Denial('idle', 'The program sent nothing');
    else
      throw new Denial(
        'ambiguous_request',
        `What is sent to port ${this.#target.port} is neither HTTP nor TLS, and the policy decides by requests`,
      );
  }

  async #takeSsh(put: SshPut): Promise<void> {
    const connection = sshConnection(this.#engine, this.#sandbox, put, {
      target: this.#target,
      meter: this.#meter,
      withdraw: () => {
        this.#attempt?.withdraw();
        this.#attempt = undefined;
      },
      pinned: () => this.#pinned ?? null,
      finish: (attempt, denial) => this.#finish(attempt, denial),
      touch: () => this.touch(),
      dial: () => this.#dial(),
      end: (denial) => this.#end(denial),
    });
    this.#mode = 'http';
    this.#accept();
    await this.#engine.ssh!.take(this.#stream.duplex, connection);
  }

  #hand(kind: 'http1' | 'http2', socket?: Socket): void {
    this.#mode = 'http';
    this.#engine[kind](this.#stream.duplex, this.#http(false, socket));
  }

  /** Shows why it is refused, if the program speaks HTTP. Answers whether it took the connection over. */
  async #explain(denial: Denial): Promise<boolean> {
    const { name, port } = this.#target;
    if (this.#ended || name === undefined || (port !== 80 && port !== 443)) return false;
    if (this.#sandbox.policy.layers[0]?.explains === false) return false;
    this.#refused = denial;
    this.#attempt?.update({ verdict: 'denied', reason: denial.reason });
    this.#accept();
    const { duplex } = this.#stream;
    const first = await readFirstBytes(duplex, {
      timeoutMs: Math.min(2000, this.#engine.timeouts.firstBytesMs),
    });
    if (this.#ended) return true;
    this.#attempt?.update({ protocol: protocolOf(first) });
    const refusing = (secure: boolean): HttpConnection => ({
      ...this.#http(secure),
      begin: () => {
        throw denial;
      },
    });
    if (first.kind === 'http1' || first.kind === 'http2') {
      this.#finishAttempt(denial);
      this.#engine[first.kind](duplex, refusing(false));
      return true;
    }
    if (first.kind !== 'tls' || !this.#engine.tls || first.hello.serverName !== name) return false;
    this.#finishAttempt(denial);
    await this.#engine.tls
      .take(duplex, name, first.hello, refusing(true), undefined)
      .catch(() => this.#end(denial));
    return true;
  }

  #http(secure: boolean, ready?: Socket): HttpConnection {
    let first = ready;
    return {
      secure,
      touch: () => this.touch(),
      hold: (buffers) => this.#holding.add(buffers),
      dial: async () => {
        const socket = first ?? (await this.#dial());
        first = undefined;
        // What reads answers has no use for half an end.
        socket.allowHalfOpen = false;
        // A target that hangs up between requests is shown to the program, which knows what to do about it.
        socket.once('close', () => {
          if (this.#requests.size === 0 && !secure) this.#stream.duplex.end();
        });
        return socket;
      },
      begin: (facts) => this.#begin(facts, secure),
      pageOf: (denial, accept) =>
        denialPage({ sandbox: this.#sandbox.id, denial, suggestion: suggestedRule(this.#target), accept }),
    };
  }

  #begin(facts: RequestFacts, secure: boolean): Exchange {
    // A connection that is cut may have more requests in what was read of it.
    if (this.#ended) throw new Denial('closed', 'The connection has ended');
    // The requests are the record now.
    this.#attempt?.withdraw();
    this.#attempt = undefined;
    const [path = '/'] = facts.target.split('?', 1);
    const bytes = { out: 0, in: 0 };
    const { name = null, port, process = null } = this.#target;
    const attempt = this.#sandbox.attempts.begin(
      {
        name,
        address: this.#pinned ?? this.#target.address ?? null,
        port,
        protocol: secure ? 'https' : 'http',
        method: facts.method,
        path,
        process,
      },
      bytes,
    );
    const head = { method: facts.method, path, headers: headerMap(facts.headers) };
    // A body that is collected is all here until its request has ended.
    let collects = false;
    const release = this.#holding.add({
      get readableLength() {
        return collects ? bytes.out : 0;
      },
    });
    const end = (denial?: Denial) => {
      release();
      this.#requests.delete(entry);
      attempt.update({ address: this.#pinned ?? this.#target.address ?? null });
      this.#finish(attempt, denial);
    };
    const entry = { head, end };
    try {
      this.#requireFewRequests();
      const authority = checkAuthority(facts.authorities, this.#target, secure, (name) =>
        this.#checkDenied(name),
      );
      const decision = this.#decideRequest(head);
      attempt.update({ rule: decision.rule ?? null });
      if (decision.verdict !== 'allow') throw refusalOf(this.#target, decision);
      for (const budget of this.#sandbox.budgetsOf(decision.rules)) budget.request();
      const brokered = this.#engine.broker({
        method: facts.method,
        authority,
        target: facts.target,
        headers: facts.headers,
        secure,
        puts: decision.rules.flatMap(({ puts }) => puts),
        secrets: this.#engine.secrets(this.#sandbox.id),
      });
      collects = brokered.collect;
      this.#requests.add(entry);
      this.#meter.spend('out', facts.target.length + facts.headers.flat().join('').length);
      return {
        authority,
        target: brokered.target,
        headers: brokered.headers,
        collect: brokered.collect,
        finishHead: (body) => brokered.finishHead(body),
        attempt,
        maskHeader: (value) => brokered.maskHeader(value),
        maskBody: (chunk, last) => brokered.maskBody(chunk, last),
        spend: (direction, chunk) => {
          if (direction === 'out') brokered.scan(chunk);
          else this.#holding.arrived(chunk.length);
          bytes[direction] += chunk.length;
          return this.#meter.spend(direction, chunk.length);
        },
        end,
      };
    } catch (error) {
      end(Denial.from(error, 'ambiguous_request', 'The request cannot be read'));
      throw error;
    }
  }

  #requireFewRequests(): void {
    if (this.#requests.size < MAX_REQUESTS) return;
    const denial = new Denial('limit', `The connection has ${MAX_REQUESTS} requests without an answer`);
    this.cut(denial);
    throw denial;
  }

  #decideRequest(head: RequestHead): Decision {
    const { name, port } = this.#target;
    const decision =
      name === undefined ? this.#decide() : decideRequest(this.#sandbox.policy, name, port, head);
    return decision.verdict === 'ask' && this.#approved ? { ...decision, verdict: 'allow' } : decision;
  }

  #checkDenied(name: string | undefined): void {
    const rule = name === undefined ? undefined : deniedName(this.#sandbox.policy, name, this.#target.port);
    if (rule !== undefined) throw new Denial('deny_rule', `The rule "${rule}" denies ${name}`, rule);
  }

  async #dial(): Promise<Socket> {
    const { engine, port } = { engine: this.#engine, port: this.#target.port };
    this.#addresses ??= await resolveTarget(engine, this.#sandbox, this.#target, this.#rules);
    const { socket, address } = await dial({
      addresses: admittedAddresses(engine, this.#sandbox.policy, this.#target, this.#addresses),
      port,
      timeoutMs: engine.timeouts.connectMs,
      proxy: engine.proxy,
      signal: this.#given.signal,
    });
    if (this.#ended) {
      socket.destroy();
      throw new Denial('closed', 'The connection has ended');
    }
    this.#pinned = address;
    this.#attempt?.update({ address });
    this.#upstream.add(socket);
    const release = this.#holding.add(socket);
    socket.on('error', () => {});
    socket.once('close', () => {
      release();
      this.#upstream.delete(socket);
    });
    return socket;
  }

  touch(): void {
    this.#lastActive = this.#engine.clock.steady();
  }

  recheck(): void {
    if (this.#mode === 'deciding' || this.#ended) return;
    const decision = this.#decide();
    const allowed = decision.verdict === 'allow' || (decision.verdict === 'ask' && this.#approved);
    const seen = this.#mode === 'http' || !decision.inspect;
    const { name, port } = this.#target;
    const there =
      name === undefined ||
      this.#pinned === undefined ||
      this.#engine.proxy?.resolve === 'proxy' ||
      admitAddress(this.#sandbox.policy, name, this.#engine.classify(this.#pinned), port).verdict === 'allow';
    const requests = [...this.#requests].every(({ head }) => this.#decideRequest(head).verdict === 'allow');
    if (!allowed || !seen || !there || !requests)
      this.cut(
        new Denial('policy_changed', 'The network policy has changed and does not allow this connection'),
      );
  }

  tick(): void {
    const { clock, timeouts } = this.#engine;
    const now = clock.steady();
    if (this.#mode !== 'deciding' && now - this.#lastActive > timeouts.idleMs)
      this.cut(new Denial('idle', `Nothing was sent either way for ${timeouts.idleMs} ms`));
    else if (now - this.#began > timeouts.totalMs)
      this.cut(new Denial('idle', `The connection is older than ${timeouts.totalMs} ms`));
  }

  cut(denial: Denial): void {
    this.#end(denial);
  }

  #accept(): void {
    if (this.#accepted || this.#ended) return;
    this.#accepted = true;
    this.#stream.accept();
  }

  #end(denial: Denial | undefined): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#given.abort();
    this.#sandbox.connections.delete(this);
    this.#holding.close();
    this.#upstream.forEach((socket) => socket.destroy());
    // A program that leaves before it was decided on, or connected, was not let through.
    const left = this.#accepted ? undefined : new Denial('closed', 'The program ended its connection');
    this.#finishAttempt(denial ?? this.#refused ?? left);
    for (const { end } of [...this.#requests])
      end(denial ?? new Denial('closed', 'The program ended its connection'));
    this.#meter.close();
    const { duplex } = this.#stream;
    if (denial) {
      const hint = remedyOf({ sandbox: this.#sandbox.id, denial, suggestion: suggestedRule(this.#target) });
      this.#stream.refuse(denial.toError(hint));
    } else if (!duplex.destroyed && !(duplex.readableEnded && duplex.writableFinished)) duplex.destroy();
  }

  #finishAttempt(denial: Denial | undefined): void {
    if (this.#attempt) this.#finish(this.#attempt, denial);
    this.#attempt = undefined;
  }

  #finish(attempt: OpenAttempt, denial: Denial | undefined): void {
    endAttempt(attempt, denial, () => suggestedRule(this.#target));
  }
}
