/** What to use in place of flags and verbs that other tools have and Cay does not. */
const MOUNT =
  '"cay create" and "cay run" mount a volume with -v NAME:/path; "cay cp ./dir SANDBOX:/home/user/dir" copies files in';
const PORT =
  'expose a port with "cay create --port 8000" or "cay port add SANDBOX 8000"; "cay forward" brings it here';
const NETWORK = '--network none, packages or public says what a sandbox reaches, and --allow adds to it';

const FLAGS: Record<string, string> = {
  '-v': MOUNT,
  '--volume': MOUNT,
  '--mount': MOUNT,
  '-p': PORT,
  '--publish': PORT,
  '--port': PORT,
  '--net': NETWORK,
  '-d': '"cay create -- COMMAND" starts a command with a sandbox and leaves it running; "cay exec -d" in one that exists',
  '--detach':
    '"cay create -- COMMAND" starts a command with a sandbox and leaves it running; "cay exec -d" in one that exists',
  '--privileged': 'sandboxes have no privileges on the host; --user root is root inside',
  '--restart': '"cay create --on-boot start" starts a sandbox again after the machine was restarted',
  '--env-file': 'give variables one by one with -e KEY=VALUE, or -e KEY to pass on your own',
  '--entrypoint': 'the command is what follows --',
  '--format': '--json shows everything',
  '--cwd': '--workdir DIR',
  '--project': '"cay ls --all-projects" shows the sandboxes of every project; a key belongs to one project',
  '--tail': '"cay logs" has --tail SIZE, "cay events" has --tail NUMBER',
};

const VERBS: Record<string, string> = {
  archive: '"cay pause --as archived SANDBOX"',
  build: '"cay template build NAME" makes a template of a Dockerfile, "cay template save" one of a snapshot',
  checkpoint: '"cay turn SANDBOX", or "cay snapshot take --memory SANDBOX"',
  commit: '"cay snapshot take SANDBOX"',
  connect: '"cay shell SANDBOX"',
  delete: '"cay rm SANDBOX"',
  destroy: '"cay rm SANDBOX"',
  freeze: '"cay pause --as frozen SANDBOX"',
  hibernate: '"cay pause --as hibernated SANDBOX"',
  history: '"cay tree SANDBOX"',
  images: '"cay image ls"',
  info: '"cay inspect SANDBOX", or "cay status" for the server',
  keys: '"cay key ls"',
  list: '"cay ls"',
  load: '"cay snapshot load FILE" for a snapshot, "cay image import FILE" for an image',
  login: 'set CAY_URL and CAY_API_KEY; "cay key create NAME" makes a key',
  open: '"cay port ls SANDBOX" shows addresses to open',
  pull: '"cay image pull NAME"',
  remove: '"cay rm SANDBOX"',
  rename: '"cay create --name NAME" gives a name for good; "cay update --label" changes labels',
  restart: '"cay stop SANDBOX" and "cay start SANDBOX"',
  restore: '"cay rollback SANDBOX SNAPSHOT"',
  save: '"cay snapshot save SNAPSHOT FILE"',
  serve: '"cay up"',
  server: '"cay up"',
  show: '"cay inspect SANDBOX"',
  snapshots: '"cay snapshot ls"',
  ssh: '"cay shell SANDBOX"',
  templates: '"cay template ls"',
  top: '"cay stats" shows what sandboxes use, "cay ps SANDBOX" the commands of one',
  volumes: '"cay volume ls"',
  unfreeze: '"cay resume SANDBOX"',
  unpause: '"cay resume SANDBOX"',
  url: '"cay port ls SANDBOX" shows addresses to open',
  wake: '"cay resume SANDBOX"; the next call wakes a paused sandbox by itself',
};

export function insteadOfFlag(flag: string): string | undefined {
  return Object.hasOwn(FLAGS, flag) ? FLAGS[flag] : undefined;
}

export function insteadOfVerb(verb: string): string | undefined {
  return Object.hasOwn(VERBS, verb) ? VERBS[verb] : undefined;
}
