/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration: the file, the mount options, what each refusal says, the dump and the reload. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "store/config.h"
#include "tests/unit/temp_dir.h"

#define GIB (UINT64_C(1) << 30)

static struct config c;
static struct errmsg e;

static void setup(void)
{
	ck_assert_int_eq(config_init(&c), 0);
	e.text[0] = '\0';
}

static void teardown(void)
{
	config_done(&c);
}

static int parse(const char *text)
{
	return config_parse(text, strlen(text), "fluxkv.yaml", &c, &e);
}

START_TEST(test_defaults)
{
	char *catalog, *control, host[256];

	gethostname(host, sizeof(host));
	ck_assert_str_eq(c.instance_key, host);
	ck_assert_str_eq(c.cluster_name, "fluxkv");
	ck_assert_uint_eq(c.dram, GIB);
	ck_assert(!c.ssd_enabled);
	ck_assert(c.auto_namespace && c.ssd_direct && !c.allow_other && !c.read_only);
	ck_assert_uint_eq(c.block_size, 64 << 20);
	ck_assert_uint_eq(c.negative_timeout, 100);
	ck_assert_uint_eq(c.log_level, LOG_LVL_INFO);
	ck_assert_int_eq(config_check(&c, &e), 0);
	ck_assert_int_eq(config_options("instance=n1", &c, &e), 0);
	catalog = config_catalog_path(&c);
	control = config_control_path(&c);
	ck_assert_str_eq(catalog, "/var/lib/fluxkv/n1/catalogue.db");
	ck_assert_str_eq(control, "/run/fluxkv/n1/control");
	free(catalog);
	free(control);
}
END_TEST

/* The source system's own example. */
START_TEST(test_example)
{
	ck_assert_msg(
	    parse("fluxonkv_spec:\n"
		  "  large_file_paths: [/data/fluxon_large0, /data/fluxon_large1]  # one root from each path\n"
		  "  large_limit_size: [\"4GB\", \"8GB\"]\n") == 0,
	    "%s", e.text);
	ck_assert(c.ssd_enabled);
	ck_assert_uint_eq(c.n_ssd, 2);
	ck_assert_str_eq(c.ssd[0].path, "/data/fluxon_large0");
	ck_assert_str_eq(c.ssd[1].path, "/data/fluxon_large1");
	ck_assert_uint_eq(c.ssd[0].limit, 4 * GIB);
	ck_assert_uint_eq(c.ssd[1].limit, 8 * GIB);
	/* a file read later says it anew */
	ck_assert_int_eq(parse("fluxonkv_spec: {large_file_paths: [/b], large_limit_size: [1TB]}\n"), 0);
	ck_assert_uint_eq(c.n_ssd, 1);
	ck_assert_str_eq(c.ssd[0].path, "/b");
}
END_TEST

START_TEST(test_every_key)
{
	char *catalog, *control;

	ck_assert_msg(parse("instance_key: node-7\n"
			    "contribute_to_cluster_pool_size: {dram: 2GB}\n"
			    "fluxonkv_spec:\n"
			    "  large_limit_size: [1073741824, 512.9B, '1.5GB']\n"
			    "  large_file_paths:\n"
			    "    - /a\n"
			    "    - \"/b c\"\n"
			    "    - /d:e\n"
			    "  cluster_name: prod\n"
			    "run_dir: /tmp/run\n"
			    "state_dir: /tmp/state\n"
			    "catalog: /tmp/c.db\n"
			    "listen: 10.0.0.7:7450\n"
			    "cluster_key_file: /etc/fluxkv/key\n"
			    "data_listen: 10.0.0.7:7451\n"
			    "data_address: node7.lab\n"
			    "control_socket: /tmp/s\n"
			    "control_mode: 0660\n"
			    "auto_namespace: no\n"
			    "block_size: 16MiB\n"
			    "negative_timeout: 0.25\n"
			    "entry_timeout: 1m\n"
			    "fuse_threads: 4\n"
			    "passthrough: on\n"
			    "passthrough_max: 16MiB\n"
			    "allow_other: true\n"
			    "ssd_direct: false\n"
			    "ssd_retry: 5s\n"
			    "ssd_io_depth: 32\n"
			    "ssd_shards: 2\n"
			    "persist_backlog: 256MB\n"
			    "staging_size: 128MB\n"
			    "put_deadline: 90\n"
			    "leg_deadline: 2500ms\n"
			    "log_level: debug\n") == 0,
		      "%s", e.text);
	ck_assert_str_eq(c.instance_key, "node-7");
	ck_assert_uint_eq(c.dram, 2 * GIB);
	ck_assert_str_eq(c.cluster_name, "prod");
	ck_assert_uint_eq(c.n_ssd, 3);
	ck_assert_uint_eq(c.ssd[0].limit, GIB);
	ck_assert_uint_eq(c.ssd[1].limit, 512);
	ck_assert_uint_eq(c.ssd[2].limit, GIB + GIB / 2);
	ck_assert_str_eq(c.ssd[1].path, "/b c");
	ck_assert_str_eq(c.ssd[2].path, "/d:e");
	ck_assert_str_eq(c.run_dir, "/tmp/run");
	ck_assert_str_eq(c.state_dir, "/tmp/state");
	ck_assert_str_eq(c.listen, "10.0.0.7:7450");
	ck_assert_str_eq(c.cluster_key_file, "/etc/fluxkv/key");
	ck_assert_str_eq(c.data_listen, "10.0.0.7:7451");
	ck_assert_str_eq(c.data_address, "node7.lab");
	ck_assert_uint_eq(c.control_mode, 0660);
	ck_assert(!c.auto_namespace && c.allow_other && !c.ssd_direct);
	ck_assert_uint_eq(c.block_size, 16 << 20);
	ck_assert_uint_eq(c.negative_timeout, 250);
	ck_assert_uint_eq(c.entry_timeout, 60000);
	ck_assert_uint_eq(c.fuse_threads, 4);
	ck_assert_uint_eq(c.passthrough, CONFIG_TRY_ON);
	ck_assert_uint_eq(c.passthrough_max, 16 << 20);
	ck_assert_uint_eq(c.ssd_retry, 5000);
	ck_assert_uint_eq(c.ssd_io_depth, 32);
	ck_assert_uint_eq(c.ssd_shards, 2);
	ck_assert_uint_eq(c.persist_backlog, 256 << 20);
	ck_assert_uint_eq(c.staging_size, 128 << 20);
	ck_assert_uint_eq(c.put_deadline, 90000);
	ck_assert_uint_eq(c.leg_deadline, 2500);
	ck_assert_uint_eq(c.log_level, LOG_LVL_DEBUG);
	catalog = config_catalog_path(&c);
	control = config_control_path(&c);
	ck_assert_str_eq(catalog, "/tmp/c.db");
	ck_assert_str_eq(control, "/tmp/s");
	free(catalog);
	free(control);
	ck_assert_int_eq(config_check(&c, &e), 0);
}
END_TEST

static const char *const harmless[] = {
    "",
    "# nothing\n",
    "---\n...\n",
    "{}",
    "~",
    "fluxonkv_spec:\n",
    "fluxonkv_spec: {large_file_paths: null, large_limit_size: ~}\ncontribute_to_cluster_pool_size: {}\n",
    "\xef\xbb\xbf# with a byte order mark\n",
};

START_TEST(test_nothing_in_it)
{
	ck_assert_msg(parse(harmless[_i]) == 0, "%s", e.text);
	ck_assert(!c.ssd_enabled);
	ck_assert_uint_eq(c.n_ssd, 0);
}
END_TEST

/* large_limit_size absent or null: the paths are there, the tier is not. */
START_TEST(test_paths_without_limits)
{
	ck_assert_int_eq(parse("fluxonkv_spec: {large_file_paths: [/a], large_limit_size: null}\n"), 0);
	ck_assert(!c.ssd_enabled);
	ck_assert_uint_eq(c.n_ssd, 1);
	ck_assert_uint_eq(c.ssd[0].limit, 0);
}
END_TEST

static const struct {
	const char *text, *says;
} refused[] = {
    {"listen: 7450", "fluxkv.yaml:1: listen: \"7450\" is not an address; write NUMBER:PORT such as 127.0.0.1:7450 or "
		     "[::1]:7450"},
    {"listen: [a]", "fluxkv.yaml:1: listen: expected an address, found a list"},
    {"lissten: 1", "fluxkv.yaml:1: lissten: unknown key; did you mean \"listen\"?"},
    {"a: 1\nb", "fluxkv.yaml:2: not YAML: while scanning a simple key, could not find expected ':'"},
    {"fluxonkv_spec: [\n", "fluxkv.yaml:2: not YAML: while parsing a flow node, did not find expected node content"},
    {"a: \x01\n", "fluxkv.yaml: not text: control characters are not allowed at byte 3"},
    {"a: \xff\n", "fluxkv.yaml: not text: invalid leading UTF-8 octet at byte 3"},
    {"- 1\n", "fluxkv.yaml:1: the file: expected a group of keys, found a list"},
    {"hello\n", "fluxkv.yaml:1: the file: expected a group of keys, found a value"},
    {"log_level: info\n---\nlog_level: warn\n", "fluxkv.yaml:3: a second document; the file must have one"},
    {"\n\n\ncontribute_to_cluster_pool_size: {dram: 2XB}\n",
     "fluxkv.yaml:4: contribute_to_cluster_pool_size.dram: \"2XB\" is not a size; write bytes or a number with B, KB, "
     "MB, GB or TB"},
    {"contribute_to_cluster_pool_size: {dram: 99999999999999999999}\n",
     "fluxkv.yaml:1: contribute_to_cluster_pool_size.dram: \"99999999999999999999\" is larger than any size"},
    {"contribute_to_cluster_pool_size: {dram: -1}\n",
     "fluxkv.yaml:1: contribute_to_cluster_pool_size.dram: \"-1\" is not a size; write bytes or a number with B, KB, "
     "MB, GB or TB"},
    {"contribute_to_cluster_pool_size:\n  dram: 0\n",
     "fluxkv.yaml:2: contribute_to_cluster_pool_size.dram: \"0\" is less than 1 MiB"},
    {"contribute_to_cluster_pool_size: {dram: 1023.9KB}\n",
     "fluxkv.yaml:1: contribute_to_cluster_pool_size.dram: \"1023.9KB\" is less than 1 MiB"},
    {"contribute_to_cluster_pool_size: {dram: 9000PB}\n",
     "fluxkv.yaml:1: contribute_to_cluster_pool_size.dram: \"9000PB\" is larger than any size"},
    {"contribute_to_cluster_pool_size: {drum: 1}\n",
     "fluxkv.yaml:1: drum: unknown key of contribute_to_cluster_pool_size; did you mean \"dram\"?"},
    {"contribute_to_cluster_pool_size: 2GB\n",
     "fluxkv.yaml:1: contribute_to_cluster_pool_size: expected a group of keys, found a value"},
    {"contribute_to_cluster_pool_size: {dram: [1]}\n",
     "fluxkv.yaml:1: contribute_to_cluster_pool_size.dram: expected a size, found a list"},
    {"contribute_to_cluster_pool_size:\n  dram:\n",
     "fluxkv.yaml:2: contribute_to_cluster_pool_size.dram: expected a size, found nothing"},
    {"contribute_to_cluster_pool_sise: {}\n",
     "fluxkv.yaml:1: contribute_to_cluster_pool_sise: unknown key; did you mean \"contribute_to_cluster_pool_size\"?"},
    {"zzzzzzzz: 1\n", "fluxkv.yaml:1: zzzzzzzz: unknown key"},
    {"instance: a\n", "fluxkv.yaml:1: instance: unknown key; in a file it is \"instance_key\""},
    {"contribute_to_cluster_pool_size: {run_dir: /a}\n",
     "fluxkv.yaml:1: run_dir: unknown key; in a file it is \"run_dir\" at the top"},
    {"\"fluxonkv_spec.cluster_name\": a\n", "fluxkv.yaml:1: fluxonkv_spec.cluster_name: unknown key"},
    {"\"a\\nb\": 1\n", "fluxkv.yaml:1: ?: unknown key"},
    {"\"a\\0b\": 1\n", "fluxkv.yaml:1: ?: unknown key"},
    {"? [1]\n: 2\n", "fluxkv.yaml:1: ?: unknown key"},
    {"cluster_name: a\n",
     "fluxkv.yaml:1: cluster_name: unknown key; in a file it is \"cluster_name\" below \"fluxonkv_spec\""},
    {"log_level: info\nlog_level: warn\n",
     "fluxkv.yaml:2: log_level: is here for the second time; the first is in line 1"},
    {"log_level: loud\n", "fluxkv.yaml:1: log_level: \"loud\" is not a log level; write error, warn, info or debug"},
    {"allow_other: maybe\n", "fluxkv.yaml:1: allow_other: \"maybe\" is neither true nor false"},
    {"fuse_threads: 257\n", "fluxkv.yaml:1: fuse_threads: \"257\" is not between 0 and 256"},
    {"passthrough: maybe\n", "fluxkv.yaml:1: passthrough: \"maybe\" is not auto, on or off"},
    {"passthrough: [on]\n", "fluxkv.yaml:1: passthrough: expected auto, on or off, found a list"},
    {"fuse_threads: 1.5\n", "fluxkv.yaml:1: fuse_threads: \"1.5\" is not a whole number"},
    {"fuse_threads: 18446744073709551617\n",
     "fluxkv.yaml:1: fuse_threads: \"18446744073709551617\" is not a whole number"},
    {"block_size: 1KB\n", "fluxkv.yaml:1: block_size: \"1KB\" is not between 4 KiB and 1 GiB"},
    {"block_size: 48MB\n", "fluxkv.yaml:1: block_size: \"48MB\" is not a power of two"},
    {"log_level: info\nblock_size: 12288\n", "fluxkv.yaml:2: block_size: \"12288\" is not a power of two"},
    {"negative_timeout: -1\n",
     "fluxkv.yaml:1: negative_timeout: \"-1\" is not a time; write seconds (0.1) or a number with ms, s, m or h"},
    {"negative_timeout: 5 weeks\n",
     "fluxkv.yaml:1: negative_timeout: \"5 weeks\" is not a time; write seconds (0.1) or a number with ms, s, m or h"},
    {"put_deadline: 4.9\n", "fluxkv.yaml:1: put_deadline: \"4.9\" is not between 5 s and 86400 s"},
    {"control_mode: 0999\n",
     "fluxkv.yaml:1: control_mode: \"0999\" is not a file mode; write octal digits such as 0600"},
    {"control_mode: 1777\n", "fluxkv.yaml:1: control_mode: \"1777\" is not between 0000 and 0777"},
    {"run_dir: run\n", "fluxkv.yaml:1: run_dir: \"run\" is not an absolute path"},
    {"run_dir: \"/a\\0b\"\n", "fluxkv.yaml:1: run_dir: expected a path, found a value"},
    {"run_dir: \"/a\\nb\"\n", "fluxkv.yaml:1: run_dir: \"?\" is not an absolute path"},
    {"instance_key: a/b\n",
     "fluxkv.yaml:1: instance_key: \"a/b\" is not a name; write 1 to 128 characters without \"/\""},
    {"instance_key: '..'\n",
     "fluxkv.yaml:1: instance_key: \"..\" is not a name; write 1 to 128 characters without \"/\""},
    {"instance_key: ''\n", "fluxkv.yaml:1: instance_key: \"\" is not a name; write 1 to 128 characters without \"/\""},
    {"fluxonkv_spec:\n  large_file_paths: [/a, /b]\n  large_limit_size: [1GB]\n",
     "fluxkv.yaml:3: fluxonkv_spec.large_limit_size: 1 sizes for 2 large_file_paths; give one for each"},
    {"fluxonkv_spec:\n  large_limit_size: [1GB, 2GB, 3GB]\n",
     "fluxkv.yaml:2: fluxonkv_spec.large_limit_size: 3 sizes for 0 large_file_paths; give one for each"},
    {"fluxonkv_spec:\n  large_file_paths: [/a]\n  large_limit_size: []\n",
     "fluxkv.yaml:3: fluxonkv_spec.large_limit_size: 0 sizes for 1 large_file_paths; give one for each"},
    {"fluxonkv_spec:\n  large_file_paths: /a\n",
     "fluxkv.yaml:2: fluxonkv_spec.large_file_paths: expected a list of paths, found a value"},
    {"fluxonkv_spec:\n  large_file_paths: [/a]\n  large_limit_size: 1GB\n",
     "fluxkv.yaml:3: fluxonkv_spec.large_limit_size: expected a list of sizes, found a value"},
    {"fluxonkv_spec:\n  large_file_paths:\n  - /a\n  - b\n",
     "fluxkv.yaml:4: fluxonkv_spec.large_file_paths: \"b\" is not an absolute path"},
    {"fluxonkv_spec:\n  large_file_paths: [/a, ~]\n",
     "fluxkv.yaml:2: fluxonkv_spec.large_file_paths: expected a path, found nothing"},
    {"fluxonkv_spec:\n  large_file_paths: [/a]\n  large_limit_size:\n  - 511.9B\n",
     "fluxkv.yaml:4: fluxonkv_spec.large_limit_size: \"511.9B\" is less than 512 bytes"},
    {"fluxonkv_spec:\n  large_file_paths: [/a]\n  large_limit_size: [{}]\n",
     "fluxkv.yaml:3: fluxonkv_spec.large_limit_size: expected a size, found a group of keys"},
    {"fluxonkv_spec:\n  large_file_path: [/a]\n",
     "fluxkv.yaml:2: large_file_path: unknown key of fluxonkv_spec; did you mean \"large_file_paths\"?"},
    {"&a {fluxonkv_spec: *a}\n", "fluxkv.yaml:1: fluxonkv_spec: unknown key of fluxonkv_spec"},
};

START_TEST(test_refused)
{
	char *before = config_dump(&c), *after;

	ck_assert_msg(parse(refused[_i].text) < 0, "%s", refused[_i].text);
	ck_assert_str_eq(e.text, refused[_i].says);
	ck_assert_ptr_null(strchr(e.text, '\n'));
	after = config_dump(&c);
	ck_assert_str_eq(before, after);
	free(before);
	free(after);
}
END_TEST

START_TEST(test_too_many_devices)
{
	char text[2048] = "fluxonkv_spec:\n  large_file_paths: [/0";

	for (int i = 1; i < 33; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), ", /%d", i);
	strcat(text, "]\n");
	ck_assert_int_eq(parse(text), -E2BIG);
	ck_assert_str_eq(e.text, "fluxkv.yaml:2: fluxonkv_spec.large_file_paths: more than 32 SSD paths");
}
END_TEST

/* What takes libyaml the square of its length must be refused before it is loaded, here within check's 4 seconds. */
START_TEST(test_hostile)
{
	static const struct {
		const char *piece, *says;
	} cases[] = {
	    {"[", "fluxkv.yaml:1: lists and groups are nested deeper than in any configuration"},
	    {"{", "fluxkv.yaml:1: lists and groups are nested deeper than in any configuration"},
	    {"[\n", "fluxkv.yaml:17: lists and groups are nested deeper than in any configuration"},
	    {"- ", "fluxkv.yaml:1: lists and groups are nested deeper than in any configuration"},
	    {"? ", "fluxkv.yaml:1: lists and groups are nested deeper than in any configuration"},
	    {"[a, ", "fluxkv.yaml:1: lists and groups are nested deeper than in any configuration"},
	};
	size_t n = strlen(cases[_i].piece), len = 200 * 1024 / n * n;
	char *text = malloc(len);

	ck_assert_ptr_nonnull(text);
	for (size_t i = 0; i < len; i += n)
		memcpy(text + i, cases[_i].piece, n);
	ck_assert_int_eq(config_parse(text, len, "fluxkv.yaml", &c, &e), -EINVAL);
	ck_assert_str_eq(e.text, cases[_i].says);
	free(text);
}
END_TEST

/* The reason is at the end of the line, and the line has an end. */
START_TEST(test_long_values)
{
	char list[3000] = "instance=";

	memset(list + strlen(list), 'x', 2900);
	ck_assert_int_eq(config_options(list, &c, &e), -EINVAL);
	ck_assert_str_eq(e.text, "-o instance: \"...\" is not a name; write 1 to 128 characters without \"/\"");
	memset(list, 'x', strlen("instance="));
	ck_assert_int_eq(config_options(list, &c, &e), -EINVAL);
	ck_assert_str_eq(e.text, "-o ...: unknown option");
}
END_TEST

static int options(const char *list)
{
	return config_options(list, &c, &e);
}

START_TEST(test_options)
{
	ck_assert_int_eq(parse("fluxonkv_spec: {large_file_paths: [/a], large_limit_size: [1GB]}\nlog_level: warn\n"),
			 0);
	ck_assert_msg(options("dram=3GB,instance=i,cluster=c,ssd=/x\\,y:1\\:2:512,allow_other,block_size=1MB,"
			      "fluxonkv_spec.cluster_name=d,log_level=error,negative_timeout=0,,auto_namespace=off") ==
			  0,
		      "%s", e.text);
	ck_assert_uint_eq(c.dram, 3 * GIB);
	ck_assert_str_eq(c.instance_key, "i");
	ck_assert_str_eq(c.cluster_name, "d");
	ck_assert_uint_eq(c.n_ssd, 1);
	ck_assert_str_eq(c.ssd[0].path, "/x,y:1:2");
	ck_assert_uint_eq(c.ssd[0].limit, 512);
	ck_assert(c.allow_other && !c.auto_namespace);
	ck_assert_uint_eq(c.block_size, 1 << 20);
	ck_assert_uint_eq(c.negative_timeout, 0);
	ck_assert_uint_eq(c.log_level, LOG_LVL_ERROR);
	/* a second -o adds its device to the first one's */
	ck_assert_int_eq(options("ssd=/z:1TB"), 0);
	ck_assert_uint_eq(c.n_ssd, 2);
	ck_assert_str_eq(c.ssd[1].path, "/z");
	ck_assert_int_eq(options(""), 0);
}
END_TEST

START_TEST(test_options_of_mount)
{
	ck_assert_msg(options("rw,defaults,noauto,nofail,_netdev,user=me,users,nodev,nosuid,suid,dev,exec,noatime,sync,"
			      "x-systemd.automount,x-systemd.requires=a.service,X-mount.mkdir,comment=hello,"
			      "default_permissions") == 0,
		      "%s", e.text);
	ck_assert(!c.read_only && !c.no_exec);
	ck_assert_int_eq(options("ro,noexec"), 0);
	ck_assert(c.read_only && c.no_exec);
	ck_assert_int_eq(options("rw"), 0);
	ck_assert(!c.read_only);
}
END_TEST

static const struct {
	const char *list, *says;
} refused_options[] = {
    {"dram=2XB", "-o dram: \"2XB\" is not a size; write bytes or a number with B, KB, MB, GB or TB"},
    {"dram", "-o dram: expected a size: dram=..."},
    {"ro=1", "-o ro: unknown option"},
    {"listen=127.0.0.1:1", "-o listen: that is fluxkv-master's, and no option of a node"},
    {"listem=127.0.0.1:1", "-o listem: unknown option"},
    {"dramm=1", "-o dramm: unknown option; did you mean \"dram\"?"},
    {"ssd", "-o ssd: expected PATH:SIZE"},
    {"ssd=/a", "-o ssd: expected PATH:SIZE"},
    {"ssd=a:1GB", "-o ssd: \"a\" is not an absolute path"},
    {"ssd=/a:1", "-o ssd: \"1\" is less than 512 bytes"},
    {"ssd=/a:0", "-o ssd: \"0\" is less than 512 bytes"},
    {"ssd=/a:9000PB", "-o ssd: \"9000PB\" is larger than any size"},
    {"=5", "-o =5: a value of nothing; write option=value"},
    {"=", "-o =: a value of nothing; write option=value"},
    {"dram=0", "-o dram: \"0\" is less than 1 MiB"},
    {"dram=64", "-o dram: \"64\" is less than 1 MiB"},
    {"ssd=/a:", "-o ssd: \"\" is not a size; write bytes or a number with B, KB, MB, GB or TB"},
    {"large_file_paths=/a", "-o large_file_paths: give each device as ssd=PATH:SIZE"},
    {"remount", "-o remount: a mount cannot be changed; unmount it and mount it again"},
    {"=x", "-o =x: a value of nothing; write option=value"},
    {"a\nb=x", "-o ?: unknown option"},
    {"run_dir=/a\nb", "-o run_dir: \"?\" is not an absolute path"},
    {"run_dir=/\xff", "-o run_dir: \"?\" is not an absolute path"},
    {"run_dir=/\xc0\xaf", "-o run_dir: \"?\" is not an absolute path"},
    {"run_dir=/\xed\xa0\x80", "-o run_dir: \"?\" is not an absolute path"},
    {"allow_other=perhaps", "-o allow_other: \"perhaps\" is neither true nor false"},
    {"defaults=1", "-o defaults: unknown option"},
};

START_TEST(test_refused_options)
{
	char list[256], *before = config_dump(&c), *after;

	snprintf(list, sizeof(list), "log_level=debug,%s", refused_options[_i].list);
	ck_assert_int_lt(options(list), 0);
	ck_assert_str_eq(e.text, refused_options[_i].says);
	after = config_dump(&c);
	ck_assert_str_eq(before, after);
	free(before);
	free(after);
}
END_TEST

START_TEST(test_check)
{
	ck_assert_int_eq(options("dram=1GB,block_size=5000"), -EINVAL);
	ck_assert_str_eq(e.text, "-o block_size: \"5000\" is not a power of two");
	ck_assert_int_eq(
	    options(
		"dram=1GB,block_size=8192,run_dir=/a23456789012345678901234567890123456789012345678901234567890123456"
		"78901234567890123456789012345678,instance=i"),
	    0);
	ck_assert_int_eq(config_check(&c, &e), -ENAMETOOLONG);
	ck_assert_ptr_nonnull(strstr(e.text, "a socket's path has at most 107"));
	ck_assert_int_eq(options("control_socket=/a"), 0);
	ck_assert_int_eq(config_check(&c, &e), 0);
}
END_TEST

static bool same(const struct config *a, const struct config *b)
{
	char *live, *restart;
	bool r;

	ck_assert_int_eq(config_reloadable_diff(a, b, &live, &restart), 0);
	r = !*live && !*restart;
	free(live);
	free(restart);
	return r;
}

/* What the dump says reads back as the same. */
START_TEST(test_dump)
{
	struct config again;
	char *text;

	ck_assert_int_eq(
	    options("instance=a\"b\\\\: #\xc3\xa9\xf0\x9f\x98\x80,run_dir=/r,catalog=/tmp/x y,control_mode=640,"
		    "ssd=/\xe2\x82\xac:1GB,ssd=/b:512,negative_timeout=1ms,log_level=error,auto_namespace=no"),
	    0);
	for (int round = 0; round < 2; round++) {
		text = config_dump(&c);
		ck_assert_ptr_nonnull(text);
		ck_assert_int_eq(config_init(&again), 0);
		ck_assert_msg(config_parse(text, strlen(text), "dump", &again, &e) == 0, "%s\n%s", e.text, text);
		ck_assert_msg(same(&c, &again), "%s", text);
		ck_assert_str_eq(again.instance_key, c.instance_key);
		config_done(&again);
		free(text);
		config_done(&c);
		setup();
	}
}
END_TEST

START_TEST(test_reload)
{
	struct config new;
	char *live, *restart;

	ck_assert_int_eq(config_init(&new), 0);
	ck_assert(same(&c, &new));
	ck_assert_int_eq(config_options("log_level=debug,fuse_threads=3,catalog=/x,ssd=/a:1GB", &new, &e), 0);
	ck_assert_int_eq(config_reloadable_diff(&c, &new, &live, &restart), 0);
	ck_assert_str_eq(live, "log_level");
	ck_assert_str_eq(restart, "catalog, fuse_threads, fluxonkv_spec.large_file_paths or large_limit_size");
	free(live);
	free(restart);
	config_apply_live(&c, &new);
	ck_assert_uint_eq(c.log_level, LOG_LVL_DEBUG);
	ck_assert_uint_eq(c.fuse_threads, 0);
	config_done(&new);
}
END_TEST

/* What a node has no use for is neither in its dump nor something that its reload talks about. */
START_TEST(test_keys_of_the_master)
{
	struct config old;
	char *text;

	ck_assert_str_eq(c.listen, "127.0.0.1:7450");
	ck_assert_ptr_null(c.cluster_key_file);
	ck_assert_int_eq(config_init(&old), 0);
	ck_assert_int_eq(config_set(&c, "listen", "[::]:0", &e), 0);
	ck_assert_str_eq(c.listen, "[::]:0");
	ck_assert_int_eq(config_set(&c, "listen", "localhost:7450", &e), -EINVAL);
	ck_assert_str_eq(c.listen, "[::]:0");
	ck_assert_int_eq(parse("cluster_key_file: /k\n"), 0);
	ck_assert_str_eq(c.cluster_key_file, "/k");
	ck_assert_int_eq(parse("cluster_key_file: null\n"), 0);
	ck_assert_ptr_null(c.cluster_key_file);
	ck_assert(same(&c, &old));
	text = config_dump(&c);
	ck_assert(text && !strstr(text, "\nlisten") && strstr(text, "\ncluster_key_file: null\n"));
	free(text);
	config_done(&old);
}
END_TEST

START_TEST(test_load)
{
	char path[sizeof(temp_dir) + 8], says[256];
	int fd;

	snprintf(path, sizeof(path), "%s/config", temp_dir);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "log_level: warn\nx: 1\n", 16), 16);
	ck_assert_int_eq(config_load(path, &c, &e), 0);
	ck_assert_uint_eq(c.log_level, LOG_LVL_WARN);
	ck_assert_int_eq(ftruncate(fd, (64 << 10) + 1), 0);
	ck_assert_int_eq(config_load(path, &c, &e), -EFBIG);
	snprintf(says, sizeof(says), "%s: larger than 64 KiB, which no configuration is", path);
	ck_assert_str_eq(e.text, says);
	close(fd);
	unlink(path);
	ck_assert_int_eq(config_load(path, &c, &e), -ENOENT);
	snprintf(says, sizeof(says), "%s: No such file or directory", path);
	ck_assert_str_eq(e.text, says);
	config_done(NULL);
}
END_TEST

/* Nothing that could keep the reader waiting is even opened. */
START_TEST(test_load_no_file)
{
	char path[sizeof(temp_dir) + 8];
	int r;

	snprintf(path, sizeof(path), "%s/fifo", temp_dir);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	r = config_load(path, &c, &e);
	unlink(path);
	ck_assert_int_eq(r, -EINVAL);
	ck_assert_ptr_nonnull(strstr(e.text, ": is a pipe, a socket or a device; a configuration is a regular file"));
	ck_assert_int_eq(config_load("/none\n\033[2J/x", &c, &e), -ENOENT);
	ck_assert_str_eq(e.text, "/none??[2J/x: No such file or directory"); /* one line that steers no terminal */
	ck_assert_int_eq(config_load("/dev/zero", &c, &e), -EINVAL);
	ck_assert_int_eq(config_load("/", &c, &e), -EISDIR);
	ck_assert_str_eq(e.text, "/: is a directory; a configuration is a file");
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
	Suite *s = suite_create("config");
	TCase *t = tcase_create("all");
	SRunner *sr;
	int failed;

	tcase_add_unchecked_fixture(t, temp_dir_make, temp_dir_remove);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, test_defaults);
	tcase_add_test(t, test_example);
	tcase_add_test(t, test_every_key);
	tcase_add_loop_test(t, test_nothing_in_it, 0, COUNT(harmless));
	tcase_add_test(t, test_paths_without_limits);
	tcase_add_loop_test(t, test_refused, 0, COUNT(refused));
	tcase_add_loop_test(t, test_hostile, 0, 6);
	tcase_add_test(t, test_long_values);
	tcase_add_test(t, test_too_many_devices);
	tcase_add_test(t, test_options);
	tcase_add_test(t, test_options_of_mount);
	tcase_add_loop_test(t, test_refused_options, 0, COUNT(refused_options));
	tcase_add_test(t, test_check);
	tcase_add_test(t, test_dump);
	tcase_add_test(t, test_reload);
	tcase_add_test(t, test_keys_of_the_master);
	tcase_add_test(t, test_load);
	tcase_add_test(t, test_load_no_file);
	suite_add_tcase(s, t);
	sr = srunner_create(s);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
