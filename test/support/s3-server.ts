/**
 * An S3 server that is not ours, on loopback: moto of PyPI, which keeps objects in memory and checks
 * signatures as botocore computes them. `CAY_TEST_VERSITYGW` names a program of versitygw, which keeps them
 * on disk and is used then.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { BucketCredentials } from '../../server/src/s3/bucket.ts';
import { pythonPackages } from '../e2b/python-packages.ts';
import { freePort } from './free-ports.ts';

export interface S3Server {
  /** Which one it is. */
  readonly program: 'moto' | 'versitygw';
  /** `http://127.0.0.1:PORT` */
  readonly endpoint: string;
  readonly region: string;
  readonly credentials: BucketCredentials;
  /** A bucket that is there. */
  readonly bucket: string;
  stop(): Promise<void>;
}

const PACKAGES = ['moto[s3]==5.2.5', 'flask==3.1.3', 'flask-cors==6.0.5'];
const START_MS = 60_000;
const REGION = 'us-east-1';
const BUCKET = 'cay-tests';

/** The server, or why there is none. */
export async function startS3Server(): Promise<S3Server | { why: string }> {
  const versitygw = process.env['CAY_TEST_VERSITYGW'];
  return versitygw === undefined ? startMoto() : startVersitygw(versitygw);
}

async function startMoto(): Promise<S3Server | { why: string }> {
  const packages = await pythonPackages(PACKAGES);
  if ('why' in packages) return packages;
  const port = await freePort();
  const endpoint = `http://127.0.0.1:${port}`;
  const script = `from moto.server import main; main(["-H", "127.0.0.1", "-p", "${port}"])`;
  // So many actions need no signature: those that make the user.
  const env = { ...process.env, INITIAL_NO_AUTH_ACTION_COUNT: '3', MOTO_ENABLE_ISO_REGIONS: '0' };
  const child = spawn(packages.python, ['-c', script], { stdio: 'ignore', env });
  await answering(child, `${endpoint}/moto-api/`);
  const policy = {
    Version: '2012-10-17',
    Statement: [{ Effect: 'Allow', Action: 's3:*', Resource: '*' }],
  };
  await iam(endpoint, { Action: 'CreateUser', UserName: 'cay' });
  await iam(endpoint, {
    Action: 'PutUserPolicy',
    UserName: 'cay',
    PolicyName: 'all',
    PolicyDocument: JSON.stringify(policy),
  });
  const made = await iam(endpoint, { Action: 'CreateAccessKey', UserName: 'cay' });
  const credentials = {
    accessKeyId: /<AccessKeyId>([^<]+)/.exec(made)![1]!,
    secretKey: /<SecretAccessKey>([^<]+)/.exec(made)![1]!,
  };
  await makeBucket(endpoint, credentials);
  return running('moto', endpoint, credentials, child);
}

async function startVersitygw(program: string): Promise<S3Server> {
  const directory = await mkdtemp('/tmp/cay-s3-');
  await mkdir(join(directory, BUCKET));
  const address = `127.0.0.1:${await freePort()}`;
  const credentials = { accessKeyId: 'cay-tests', secretKey: 'secret-of-the-tests' };
  const env = {
    ...process.env,
    ROOT_ACCESS_KEY: credentials.accessKeyId,
    ROOT_SECRET_KEY: credentials.secretKey,
  };
  const child = spawn(program, ['--port', address, '--health', '/health', 'posix', directory], {
    stdio: 'ignore',
    env,
  });
  const endpoint = `http://${address}`;
  await answering(child, `${endpoint}/health`);
  return running('versitygw', endpoint, credentials, child, directory);
}

function running(
  program: S3Server['program'],
  endpoint: string,
  credentials: BucketCredentials,
  child: ChildProcess,
  directory?: string,
): S3Server {
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  return {
    program,
    endpoint,
    region: REGION,
    credentials,
    bucket: BUCKET,
    async stop() {
      child.kill('SIGKILL');
      await ended;
      if (directory !== undefined) await rm(directory, { recursive: true, force: true });
    },
  };
}

async function iam(endpoint: string, form: Record<string, string>): Promise<string> {
  const answer = await fetch(endpoint, {
    method: 'POST',
    headers: {
      authorization:
        'AWS4-HMAC-SHA256 Credential=any/20200101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=0',
    },
    body: new URLSearchParams({ Version: '2010-05-08', ...form }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`moto refuses ${form['Action']}: ${text.slice(0, 300)}`);
  return text;
}

async function makeBucket(endpoint: string, credentials: BucketCredentials): Promise<void> {
  const { signV4, sha256 } = await import('../../server/src/lib/sigv4.ts');
  const target = `/${BUCKET}`;
  const signed = signV4({
    method: 'PUT',
    authority: new URL(endpoint).host,
    target,
    headers: [],
    payloadHash: sha256(''),
    region: REGION,
    service: 's3',
    ...credentials,
    now: new Date(),
  });
  const answer = await fetch(endpoint + target, {
    method: 'PUT',
    headers: signed.map(([a, b]): [string, string] => [a, b]),
  });
  if (!answer.ok) throw new Error(`moto makes no bucket: ${(await answer.text()).slice(0, 300)}`);
}

async function answering(child: ChildProcess, url: string): Promise<void> {
  const deadline = Date.now() + START_MS;
  while (
    !(await fetch(url).then(
      ({ ok }) => ok,
      () => false,
    ))
  ) {
    if (child.exitCode !== null || Date.now() > deadline) {
      child.kill('SIGKILL');
      throw new Error(`No S3 server answers at ${url}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
