/** The keys and certificates of a cluster, and kubeconfigs that use them. */
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

export const NODE_NAME = 'node1';
export const NODE_IP = '10.89.0.1';

interface Leaf {
  subject: string;
  usage: 'serverAuth' | 'clientAuth';
  names?: string[];
}

const LEAVES: Record<string, Leaf> = {
  apiserver: {
    subject: '/CN=kube-apiserver',
    usage: 'serverAuth',
    names: ['DNS:localhost', 'DNS:kubernetes.default.svc', 'IP:127.0.0.1', 'IP:10.96.0.1', `IP:${NODE_IP}`],
  },
  'kubelet-server': {
    subject: `/CN=${NODE_NAME}`,
    usage: 'serverAuth',
    names: [`DNS:${NODE_NAME}`, `IP:${NODE_IP}`],
  },
  admin: { subject: '/O=system:masters/CN=admin', usage: 'clientAuth' },
  scheduler: { subject: '/CN=system:kube-scheduler', usage: 'clientAuth' },
  kubelet: { subject: `/O=system:nodes/CN=system:node:${NODE_NAME}`, usage: 'clientAuth' },
  'apiserver-kubelet': { subject: '/O=system:masters/CN=apiserver-kubelet', usage: 'clientAuth' },
};

/** Nothing but what is asked for: the machine's own configuration may add extensions that contradict it. */
const CONFIG = '[req]\ndistinguished_name = names\n[names]\n';

const NEW_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '3650'];

export async function makeCertificates(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true });
  const at = (name: string) => `${directory}/${name}`;
  await writeFile(at('openssl.cnf'), CONFIG);
  const make = (name: string, subject: string, extensions: string[], signed: string[] = []) => {
    const added = extensions.flatMap((each) => ['-addext', each]);
    const files = ['-keyout', at(`${name}.key`), '-out', at(`${name}.crt`)];
    return run('openssl', [
      'req',
      '-x509',
      '-config',
      at('openssl.cnf'),
      ...NEW_KEY,
      '-subj',
      subject,
      ...added,
      ...signed,
      ...files,
    ]);
  };
  const signing = run('openssl', [
    'ecparam',
    '-name',
    'prime256v1',
    '-genkey',
    '-noout',
    '-out',
    at('sa.key'),
  ]).then(() => run('openssl', ['ec', '-in', at('sa.key'), '-pubout', '-out', at('sa.pub')]));
  await make('ca', '/CN=cay-test-ca', [
    'basicConstraints=critical,CA:TRUE',
    'keyUsage=critical,keyCertSign,cRLSign',
    'subjectKeyIdentifier=hash',
  ]);
  const leaves = Object.entries(LEAVES).map(([name, { subject, usage, names }]) => {
    const extensions = [
      'basicConstraints=critical,CA:FALSE',
      `extendedKeyUsage=${usage}`,
      ...(names ? [`subjectAltName=${names.join()}`] : []),
    ];
    return make(name, subject, extensions, ['-CA', at('ca.crt'), '-CAkey', at('ca.key')]);
  });
  await Promise.all([signing, ...leaves]);
}

/** Writes `DIRECTORY/CLIENT.kubeconfig`, and resolves with its path. JSON is YAML. */
export async function writeKubeconfig(
  directory: string,
  client: string,
  server: string,
  file = `${directory}/${client}.kubeconfig`,
): Promise<string> {
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'test',
    clusters: [{ name: 'test', cluster: { server, 'certificate-authority': `${directory}/ca.crt` } }],
    users: [
      {
        name: client,
        user: {
          'client-certificate': `${directory}/${client}.crt`,
          'client-key': `${directory}/${client}.key`,
        },
      },
    ],
    contexts: [{ name: 'test', context: { cluster: 'test', user: client, namespace: 'default' } }],
  };
  await writeFile(file, JSON.stringify(config), { mode: 0o600 });
  return file;
}
