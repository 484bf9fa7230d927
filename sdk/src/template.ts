import { CayError } from './protocol/error.ts';
import type {
  BuildContextInfo,
  BuildLine,
  BuildLogEntry,
  BuildTemplate,
  ReadinessCheck,
  TemplateBuild,
} from './protocol/index.ts';
import { tarOf } from './tar-of.ts';
import { connect, type ConnectOptions } from './transport.ts';

type Text = string | Uint8Array;

interface TemplateFile {
  name: string;
  content: Text;
  mode: number;
}

interface StartCommand {
  command: string;
  ready?: ReadinessCheck;
}

export interface TemplateBuildOptions
  extends ConnectOptions, Omit<BuildTemplate, 'name' | 'dockerfile' | 'context' | 'start' | 'ready'> {
  signal?: AbortSignal;
  onLog?(entry: BuildLogEntry): void;
}

/**
 * What a template is to be, step by step. Nothing happens before `build`, which runs the steps in sandboxes
 * of the server, each once: a step that did not change since the last build is taken from before.
 *
 *     const build = await Template.from('base')
 *       .run('pip install --user flask')
 *       .write('/home/user/app.py', source)
 *       .start('python3 app.py', { port: 8000 })
 *       .build('web', { onLog: ({ message }) => console.log(message) });
 *     const sandbox = await Sandbox.create({ template: 'web' });
 *
 * A builder never changes: each call gives another one.
 */
export class Template {
  readonly #lines: readonly string[];
  readonly #files: readonly TemplateFile[];
  readonly #start: StartCommand | undefined;

  private constructor(lines: readonly string[], files: readonly TemplateFile[], start?: StartCommand) {
    this.#lines = lines;
    this.#files = files;
    this.#start = start;
  }

  /** Begins with a template or an image. */
  static from(name = 'base'): Template {
    return new Template([`FROM ${requireWord('the base', name)}`], []);
  }

  /** Goes on with a Dockerfile, without files of a directory. */
  static fromDockerfile(text: string): Template {
    return new Template([text], []);
  }

  /** A command line, or a program with its arguments. As root, unless `user` came before. */
  run(command: string | readonly string[]): Template {
    const argv = typeof command === 'string' ? ['/bin/sh', '-c', command] : command;
    return this.#with(`RUN ${JSON.stringify(argv)}`);
  }

  /** Puts a file there. */
  write(path: string, content: Text, { mode = 0o644 }: { mode?: number } = {}): Template {
    const name = `files/${this.#files.length}`;
    const files = [...this.#files, { name, content, mode }];
    return new Template([...this.#lines, `COPY ${JSON.stringify([name, path])}`], files, this.#start);
  }

  /** Copies a file or directory of another template or image. */
  copyFrom(from: string, source: string, to: string): Template {
    return this.#with(`COPY --from=${requireWord('the source', from)} ${JSON.stringify([source, to])}`);
  }

  env(variables: Readonly<Record<string, string>>): Template {
    const pairs = Object.entries(variables).map(([name, value]) => {
      if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
        throw new CayError('invalid_argument', `${JSON.stringify(name)} is no name of a variable`);
      return `ENV ${name}="${quoted(value)}"`;
    });
    return this.#with(...pairs);
  }

  workdir(path: string): Template {
    return this.#with(`WORKDIR ${quoted(requireLine('the working directory', path))}`);
  }

  user(name: string): Template {
    return this.#with(`USER ${requireWord('the user', name)}`);
  }

  expose(...ports: readonly number[]): Template {
    return this.#with(...ports.map((port) => `EXPOSE ${port}`));
  }

  /** A command line that runs in every sandbox, already when it is made where memory can be kept. */
  start(command: string, ready?: ReadinessCheck): Template {
    return new Template(this.#lines, this.#files, { command, ...(ready && { ready }) });
  }

  /** The steps as a Dockerfile. */
  get dockerfile(): string {
    return `${this.#lines.join('\n')}\n`;
  }

  /** Resolves when the template is there. Rejects `failed_precondition` if a step fails. */
  async build(name: string, options: TemplateBuildOptions = {}): Promise<TemplateBuild> {
    const { signal, onLog } = options;
    const transport = connect(options);
    const context =
      this.#files.length === 0
        ? undefined
        : await transport.json<BuildContextInfo>('POST', '/v1/builds/contexts', {
            headers: { 'content-type': 'application/x-tar' },
            body: tarOf(this.#files),
            signal,
          });
    const json = {
      ...pickRequest(options),
      name,
      dockerfile: this.dockerfile,
      ...(context && { context: context.digest }),
      ...(this.#start && { start: this.#start.command }),
      ...(this.#start?.ready && { ready: this.#start.ready }),
    };
    const begun = await transport.json<TemplateBuild>('POST', '/v1/builds', { json, signal });
    let ended: TemplateBuild | undefined;
    for await (const { log, build } of transport.lines<BuildLine>('GET', `/v1/builds/${begun.id}/log`, {
      signal,
    })) {
      if (log) onLog?.(log);
      if (build) ended = build;
    }
    ended ??= await transport.json<TemplateBuild>('GET', `/v1/builds/${begun.id}`, { signal });
    if (ended.state === 'ready') return ended;
    throw new CayError(
      'failed_precondition',
      `Template "${name}" was not built: ${ended.failure?.message ?? 'for no known reason'}`,
      { details: { build: ended.id, ...ended.failure }, hint: ended.failure?.hint },
    );
  }

  #with(...lines: readonly string[]): Template {
    return new Template([...this.#lines, ...lines], this.#files, this.#start);
  }
}

const REQUEST = ['tags', 'args', 'secrets', 'target', 'noCache', 'limits', 'network', 'timeoutMs'] as const;

function pickRequest(given: object): Partial<BuildTemplate> {
  return Object.fromEntries(
    Object.entries(given).filter(([key]) => (REQUEST as readonly string[]).includes(key)),
  );
}

const quoted = (text: string) => requireLine('a value', text).replace(/[\\"$]/g, '\\$&');

function requireLine(what: string, text: string): string {
  if (!/[\n\r\0]/.test(text)) return text;
  throw new CayError('invalid_argument', `${what} must be one line: ${JSON.stringify(text.slice(0, 100))}`);
}

function requireWord(what: string, text: string): string {
  if (/^[^\s"'\\$]+$/.test(text)) return text;
  throw new CayError('invalid_argument', `${what} must be one word: ${JSON.stringify(text.slice(0, 100))}`);
}
