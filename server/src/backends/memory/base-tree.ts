import { newDevice, newSymlink } from './file-node.ts';
import { fileTree, plant, type FileTree } from './file-tree.ts';
import { PROGRAM_MARK } from './launch.ts';
import { ROOT, lookUpUser } from './users.ts';

const DIRECTORIES: [path: string, mode: number][] = [
  ['/dev', 0o755],
  ['/dev/shm', 0o1777],
  ['/etc', 0o755],
  ['/home', 0o755],
  ['/opt', 0o755],
  ['/root', 0o700],
  ['/run', 0o755],
  ['/tmp', 0o1777],
  ['/usr', 0o755],
  ['/usr/bin', 0o755],
  ['/usr/local/bin', 0o755],
  ['/var', 0o755],
];

/**
 * The files that a sandbox starts with. Programs are files too, so that `PATH`, `ls /bin` and rights mean
 * what they say.
 */
export function baseTree(programs: Iterable<string>, files: Record<string, string | Uint8Array>): FileTree {
  const tree = fileTree();
  for (const [path, mode] of DIRECTORIES) tree.makeDirectory(ROOT, path, mode);
  plant(tree, '/etc/passwd', 'root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\n');
  plant(tree, '/etc/group', 'root:x:0:\nuser:x:1000:\n');
  plant(tree, '/etc/hostname', 'sandbox\n');
  tree.put(ROOT, tree.find(ROOT, '/bin'), newSymlink(ROOT, 'usr/bin'));
  for (const device of ['null', 'zero'] as const)
    tree.put(ROOT, tree.find(ROOT, `/dev/${device}`), newDevice(ROOT, device));
  for (const name of programs) plant(tree, `/usr/bin/${name}`, `${PROGRAM_MARK}${name}\n`, 0o755);
  const user = lookUpUser(tree, 'user');
  tree.makeDirectory(ROOT, user.home);
  const home = tree.get(ROOT, user.home).node;
  home.uid = user.uid;
  home.gid = user.gid;
  for (const [path, content] of Object.entries(files)) plant(tree, path, content);
  // What the template brings is not the sandbox's own use of its disk.
  tree.usedBytes = 0;
  return tree;
}
