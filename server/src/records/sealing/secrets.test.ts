import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { newId } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openRecords } from '../open-records.ts';
import { MIGRATIONS } from '../sqlite/migrations.ts';
import { clearCopies } from './clear-copies.ts';
import { openInstallationKey } from './installation-key.ts';

const CANARY = 'canary-4711-of-the-environment';
/** The last version whose records were in the clear. */
const CLEAR = 7;

let directory: string;
const path = () => join(directory, 'records.db');
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cay-secrets-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

/** Records as an earlier version has left them. */
function oldRecords(): { sandbox: string; snapshot: string; secret: Buffer } {
  const [sandbox, snapshot, secret] = [newId('sbx'), newId('snap'), randomBytes(32)];
  const old = new DatabaseSync(path());
  for (const sql of MIGRATIONS.slice(0, CLEAR)) old.exec(sql);
  const spec = JSON.stringify({ template: 'base', env: { SECRET: CANARY }, limits: { memoryBytes: 7 } });
  old.exec("INSERT INTO projects (id, name, quota, created_at) VALUES ('p', 'p', '{}', 1)");
  old
    .prepare(
      `INSERT INTO sandboxes (id, project, state, backend, spec, labels, ports, on_timeout, incarnation, created_at)
       VALUES (?, 'p', 'active', 'memory', ?, '{}', '[]', 'stop', 1, 1)`,
    )
    .run(sandbox, spec);
  old
    .prepare(
      `INSERT INTO snapshots (id, project, sandbox, cause, labels, memory, spec, quiet, state, here, created_at)
       VALUES (?, 'p', ?, 'manual', '{}', 0, ?, 0, 'kept', 1, 1)`,
    )
    .run(snapshot, sandbox, spec);
  old.prepare("INSERT INTO secrets VALUES ('e2b', ?)").run(secret);
  old.exec(`PRAGMA user_version = ${CLEAR}`);
  old.close();
  return { sandbox, snapshot, secret };
}

/** The files of the directory that have these bytes in them. */
function filesWith(bytes: string | Buffer): string[] {
  return readdirSync(directory).filter((name) => readFileSync(join(directory, name)).includes(bytes));
}

describe('records of an earlier version', () => {
  it('are sealed, and read as before', async () => {
    const { sandbox, snapshot, secret } = oldRecords();
    const database = await openRecords({ directory });
    expect((await database.sandboxes.get(sandbox))!.spec.env).toEqual({ SECRET: CANARY });
    expect((await database.snapshots.get(snapshot))!.spec.env).toEqual({ SECRET: CANARY });
    expect(Buffer.from(await database.secrets.get('e2b'))).toEqual(secret);
    expect((await database.sandboxes.promised()).memoryBytes).toBe(7);
    // What an earlier version can be started with again is kept until the operator removes it.
    expect(filesWith(CANARY)).toEqual([`records.db.v${CLEAR}.bak`]);
    expect(filesWith(secret)).toEqual([`records.db.v${CLEAR}.bak`]);
    expect(statSync(`${path()}.v${CLEAR}.bak`).mode & 0o777).toBe(0o600);
    expect(clearCopies(directory)).toEqual([`records.db.v${CLEAR}.bak`]);
    await database.close();
    expect(filesWith(CANARY)).toEqual([`records.db.v${CLEAR}.bak`]);
    const again = await openRecords({ directory });
    expect((await again.sandboxes.get(sandbox))!.spec.env).toEqual({ SECRET: CANARY });
    await again.close();
  });
});

describe('a secret that another program has put into sealed records', () => {
  it('is not taken for one of an earlier version', async () => {
    const database = await openRecords({ directory });
    await database.secrets.get('audit');
    await database.close();
    const forged = randomBytes(32);
    const sqlite = new DatabaseSync(path());
    sqlite.prepare("UPDATE secrets SET value = ? WHERE name = 'audit'").run(forged);
    sqlite.close();
    await expect(openRecords({ directory })).rejects.toThrow(
      'The secret "audit" in the records is not sealed',
    );
    expect(filesWith(forged)).not.toEqual([]);
  });
});

describe('the environment of a sandbox', () => {
  it('is sealed for its own row', async () => {
    const { sandbox } = oldRecords();
    const database = await openRecords({ directory });
    const { sandboxes } = database;
    const row = (await sandboxes.get(sandbox))!;
    const other = newId('sbx');
    await sandboxes.insert({ ...row, id: other });
    await sandboxes.update(other, { spec: { ...row.spec, env: { SECRET: `${CANARY}-changed` } } });
    expect((await sandboxes.get(other))!.spec.env).toEqual({ SECRET: `${CANARY}-changed` });
    expect(filesWith(`${CANARY}-changed`)).toEqual([]);
    const sqlite = new DatabaseSync(path());
    sqlite
      .prepare('UPDATE sandboxes SET spec = (SELECT spec FROM sandboxes WHERE id = ?) WHERE id = ?')
      .run(sandbox, other);
    sqlite.close();
    const copied = (await sandboxes.get(other))!;
    expect(() => copied.spec.env).toThrow();
    await database.close();
  });

  it('does not have to be opened by who does not look at it', async () => {
    const { sandbox } = oldRecords();
    const database = await openRecords({ directory });
    const sqlite = new DatabaseSync(path());
    sqlite.exec(`UPDATE sandboxes SET spec = json_set(spec, '$.env', 'sealed:1:damaged:AAAA')`);
    sqlite.close();
    expect((await database.sandboxes.get(sandbox))!.spec.template).toBe('base');
    expect(await database.sandboxes.list({})).toHaveLength(1);
    await database.close();
  });
});

describe('the key of an installation', () => {
  const sealed = async () => {
    const database = await openRecords({ directory });
    await database.secrets.get('e2b');
    await database.close();
  };

  it('is made once, for its owner alone', () => {
    const { keyId } = openInstallationKey(directory, {});
    expect(openInstallationKey(directory, {}).keyId).toBe(keyId);
    expect(statSync(join(directory, 'secret.key')).mode & 0o777).toBe(0o600);
  });

  it('is reported when it is missing, and no other is made', async () => {
    await sealed();
    const before = readFileSync(path());
    rmSync(join(directory, 'secret.key'));
    expect(() => openInstallationKey(directory, {})).toThrow(
      /^The key [0-9a-f]{12} that the records in .* are sealed with is missing/,
    );
    expect(existsSync(join(directory, 'secret.key'))).toBe(false);
    expect(readFileSync(path())).toEqual(before);
  });

  it('is reported when it is another, wherever it comes from', async () => {
    await sealed();
    const other = randomBytes(32).toString('base64');
    expect(() => openInstallationKey(directory, { CAY_SECRET_KEY: other })).toThrow('and this is key');
    expect(() => openInstallationKey(directory, { CAY_SECRET_KEY_COMMAND: `echo ${other}` })).toThrow(
      'and this is key',
    );
    writeFileSync(join(directory, 'secret.key'), other);
    expect(() => openInstallationKey(directory, {})).toThrow('and this is key');
  });

  it('comes from a variable or a command before the file', async () => {
    await sealed();
    const key = readFileSync(join(directory, 'secret.key'), 'utf8');
    rmSync(join(directory, 'secret.key'));
    expect(openInstallationKey(directory, { CAY_SECRET_KEY: key }).keyId).toHaveLength(12);
    expect(
      openInstallationKey(directory, { CAY_SECRET_KEY_COMMAND: `printf %s '${key.trim()}'` }).keyId,
    ).toHaveLength(12);
    expect(existsSync(join(directory, 'secret.key'))).toBe(false);
  });

  it('does not stand in what is said about it', () => {
    const said = (env: Record<string, string>) => {
      try {
        openInstallationKey(directory, env);
        return 'nothing';
      } catch (error) {
        return (error as Error).message;
      }
    };
    expect(said({ CAY_SECRET_KEY: 'c2hvcnQ=' })).toBe(
      'CAY_SECRET_KEY is no key: it has to be 32 bytes in base64',
    );
    expect(said({ CAY_SECRET_KEY_COMMAND: 'echo c2hvcnQ=; exit 3' })).toBe(
      'CAY_SECRET_KEY_COMMAND failed (3)',
    );
  });
});
